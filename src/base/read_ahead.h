// Advice to the disk.
#pragma once

#include <cstddef>
#include <span>

namespace longstride {

// `part` of a MappedFile (base/files.h) is going to be read: the disk begins with what is not in
// memory, and this returns without waiting for it.
void will_read(std::span<const std::byte> part);

}  // namespace longstride
