// Resident memory of this process, as the kernel counts it.
#pragma once

#include <cstdint>

namespace longstride {

std::int64_t resident_bytes();
// The peak since the start, or since reset_peak_resident_bytes where the kernel allows that (then
// it returns true).
std::int64_t peak_resident_bytes();
bool reset_peak_resident_bytes();

}  // namespace longstride
