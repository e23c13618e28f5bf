// System calls that a signal may interrupt.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace longstride {

// Calls f, which returns -1 and sets errno on failure, until no signal interrupts it.
template <class F>
auto retry_eintr(const F& f) {
  auto result = f();
  while (result == -1 && errno == EINTR) result = f();
  return result;
}

// Returns 0 or errno. Linux has closed the descriptor even if close fails with EINTR: that is no
// failure, and a second call could close another thread's descriptor.
inline int close_descriptor(int fd) { return ::close(fd) == 0 || errno == EINTR ? 0 : errno; }

}  // namespace longstride
