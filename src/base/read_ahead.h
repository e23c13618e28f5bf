// Prefetching mapped files.
#pragma once

#include <cstddef>
#include <span>

namespace longstride {

// Prefetches `part` of a MappedFile (base/files.h): starts reading the pages that are not in memory
// and returns without waiting for them.
void will_read(std::span<const std::byte> part);

}  // namespace longstride
