// Starting threads, which the system may refuse, and joining them.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace longstride {

// Throws Error if the system refuses (a limit on processes or on address space).
std::thread start_thread(std::function<void()> body);

// Joins all of them.
void join_all(std::vector<std::thread>& threads);

}  // namespace longstride
