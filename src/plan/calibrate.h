// Measures the rates of a machine (`longstride calibrate`): products and attention by shape, page
// scores, memory, the update, copies each way and both, disk, host sleep. Through the same
// operations as training, on any device; only sizes differ.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "device/device.h"
#include "plan/machine_rates.h"

namespace longstride {

struct CalibrationOptions {
  double seconds = 25;                   // about; short measurements take what they must
  std::filesystem::path disk_path = {};  // a folder; empty: the disk is not measured
};

struct Calibration {
  MachineRates rates;
  std::vector<std::string> not_measured;  // fields that are those of `base`
  double seconds = 0;                     // that it took
};

// What is not measured is taken from `base`. Throws Error if the disk cannot be written.
Calibration calibrate(Device& device, const MachineRates& base, const CalibrationOptions& options);

}  // namespace longstride
