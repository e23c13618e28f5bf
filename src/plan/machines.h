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

}  // namespace longstride
