// Pinned host memory for full-speed copies: large mappings, touched and registered with the driver
// in the background, part by part, while the first work already runs.
#pragma once

#include <string>

#include "device/device.h"

namespace longstride::cuda {

// Bytes may be copied only after Memory::prepare has returned for them, and no copy may cross a
// multiple of `unit`. prepare throws Error if the driver refuses to pin the memory.
std::unique_ptr<Memory> make_host_arena(std::int64_t bytes, std::int64_t unit,
                                        const std::string& what);

// Bytes of arenas that have not been touched yet.
std::int64_t promised_host_memory();

// Bytes that could still be allocated: available memory within machine and cgroup limits, less what
// is promised.
std::int64_t available_host_memory();

}  // namespace longstride::cuda
