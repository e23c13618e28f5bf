// Host memory that copies to and from the GPU go through at full speed: large mappings, touched and
// registered with the driver in the background, part after part, while the first work already runs.
#pragma once

#include <string>

#include "device/device.h"

namespace longstride::cuda {

// Nothing of it may be copied before Memory::prepare has returned for it; no copy may cross a
// multiple of `unit`. prepare throws Error where the driver refuses.
std::unique_ptr<Memory> make_host_arena(std::int64_t bytes, std::int64_t unit,
                                        const std::string& what);

// What could still be allocated: free memory as machine and cgroups allow, less what arenas were
// given and have not touched yet.
std::int64_t available_host_memory();

}  // namespace longstride::cuda
