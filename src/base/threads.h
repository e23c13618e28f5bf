// Threads that can be refused by the system.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace longstride {

// Throws Error where the system gives no more threads: a limit of processes or of address space.
std::thread start_thread(std::function<void()> body);

// Joins all of them; nothing where there are none.
void join_all(std::vector<std::thread>& threads);

}  // namespace longstride
