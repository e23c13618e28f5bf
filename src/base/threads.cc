#include "base/threads.h"

#include <system_error>
#include <utility>

#include "base/error.h"

namespace longstride {

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    throw Error(
        fmt::format("the system gives this process no more threads: {}", e.code().message()),
        "raise the limits of processes (ulimit -u) and of address space (ulimit -v), or use "
        "fewer threads (device.threads, or LONGSTRIDE_THREADS)");
  }
}

void join_all(std::vector<std::thread>& threads) {
  for (std::thread& thread : threads)
    if (thread.joinable()) thread.join();
}

}  // namespace longstride
