// System calls that a signal may cut short.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace longstride {

// Calls f, which answers -1 and sets errno where it fails, until no signal cuts it short.
template <class F>
auto retry_eintr(const F& f) {
  auto result = f();
  while (result == -1 && errno == EINTR) result = f();
  return result;
}

// 0, or errno's number. Linux has closed the descriptor even where close says EINTR, so that is no
// failure, and a second call could close somebody else's.
inline int close_descriptor(int fd) { return ::close(fd) == 0 || errno == EINTR ? 0 : errno; }

}  // namespace longstride
