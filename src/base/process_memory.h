// Resident memory of this process, as the kernel reports it.
#pragma once

#include <cstdint>

namespace longstride {

std::int64_t resident_bytes();
// The peak since the start, or since reset_peak_resident_bytes, which returns true if the kernel
// allows it.
std::int64_t peak_resident_bytes();
bool reset_peak_resident_bytes();

}  // namespace longstride
