#include "base/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace longstride {

void will_read(std::span<const std::byte> part) {
  if (part.empty()) return;
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data()) / page * page,
             end = reinterpret_cast<std::uintptr_t>(part.data()) + part.size();
  // Where the kernel takes no advice, nothing is lost.
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

}  // namespace longstride
