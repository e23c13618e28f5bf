// Settings with which a run fits that does not fit as asked.
#pragma once

#include <string>
#include <vector>

#include "device/device.h"
#include "plan/machine_rates.h"
#include "train/config.h"

namespace longstride {

struct Remedies {
  TrainConfig config;                 // with the settings
  std::vector<std::string> settings;  // as a user writes them; empty: none were found
};

// The cheapest settings that are enough, of which none can be left out. Those that change no result
// come first, then those that round, then those that attend to less. If all of them are not enough,
// a disk of any size is one of them, and the others are those that leave least for it: what room
// there is on the disk of an absent machine is not known.
// `chunk`: as asked, or what an automatic one became.
Remedies find_remedies(const TrainConfig& asked, std::int64_t chunk, Device& device,
                       const MachineRates& rates);

}  // namespace longstride
