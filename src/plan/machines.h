// The machines that are known by name, with their rates: measured ones, and estimates for others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/machine_rates.h"

namespace longstride {

// Throws Error for an unknown name, listing the known ones with the nearest as the hint.
const MachineRates& find_machine(std::string_view name);

std::vector<std::string> machine_names();

// The machine with this GPU, by the name that its driver gives it ("NVIDIA H200"); null if there is
// none.
const MachineRates* machine_with(std::string_view device_name);

// A rough estimate for a CPU with so many threads, in F32.
MachineRates cpu_machine(int threads);

}  // namespace longstride
