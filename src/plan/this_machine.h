// The rates of the machine that the program runs on: those of its calibration, which is cached by
// device and libraries, or of a known machine with such a device, or a rough estimate.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "device/device.h"
#include "plan/machine_rates.h"

namespace longstride {

// What a calibration is valid for: the device, its libraries and, on a CPU, the number of threads.
std::string machine_key(const Device& device);

// machines/<key>.json in the folder for caches (base/cache_folder.h); nothing if there is none.
std::optional<std::filesystem::path> calibration_file(const Device& device);
// Nothing if there is no file, or none that can be read, which a warning then says.
std::optional<MachineRates> cached_calibration(const Device& device);
// Returns the file; nothing if there is no folder for caches. Throws Error if it cannot be written.
std::optional<std::filesystem::path> cache_calibration(const Device& device,
                                                       const MachineRates& rates);

// Without a calibration.
MachineRates estimated_rates(const Device& device);
// Never throws for want of rates.
MachineRates rates_of_this_machine(const Device& device);

}  // namespace longstride
