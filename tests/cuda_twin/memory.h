// Memory that kernels and copies may use: the twin knows every allocation and every pinned range.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longstride::twin {

enum class Place : std::uint8_t { kNowhere, kDevice, kPinned };

struct Range {
  std::uint64_t begin = 0, end = 0;
  Place place = Place::kNowhere;
};

// Null if `bytes` are not left. New memory holds 0xFF bytes.
void* allocate_device(std::size_t bytes);
bool free_device(void* data);
void* allocate_pinned(std::size_t bytes);
bool free_pinned(void* data);
bool pin(void* data, std::size_t bytes);
bool unpin(void* data);
// The range that holds this address.
Range range_of(std::uint64_t address);
// Whether all of it lies in adjacent pinned ranges or one allocation of that kind.
bool lies_in(Place place, const void* data, std::size_t bytes);

std::size_t device_bytes();  // LONGSTRIDE_TWIN_MEMORY, or 16 GiB
std::size_t device_bytes_free();

}  // namespace longstride::twin
