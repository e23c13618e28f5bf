// Decodes the PTX of one kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tests/cuda_twin/kernel.h"

namespace longstride::twin {

// From ".entry" to the closing brace. `globals` are the addresses of the module's variables;
// "extern shared" ones are where dynamic shared memory begins. Throws Fault for what it does not
// know.
Kernel decode_kernel(std::string_view text, const std::map<std::string, std::uint64_t>& globals);

}  // namespace longstride::twin
