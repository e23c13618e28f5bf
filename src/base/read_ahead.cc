#include "base/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace longstride {

void will_read(std::span<const std::byte> part) {
  if (part.empty()) return;
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  // madvise takes whole pages.
  const std::size_t before = reinterpret_cast<std::uintptr_t>(part.data()) % page;
  // Only a hint: a failure changes nothing.
  (void)::madvise(const_cast<std::byte*>(part.data()) - before, part.size() + before,
                  MADV_WILLNEED);
}

}  // namespace longstride
