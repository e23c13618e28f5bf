// `train --dry-run --ranks N`: a run on several ranks, planned without a launcher.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "train/config.h"

namespace longstride::cli {

// Checks model, data and outputs like any dry run, and shows how the ranks would be used. Throws
// Error if something is wrong or does not fit. `name` is how the user named the run, `settings` are
// those of the command line ("a.b=c"). `svg`: a file for the picture of the schedule; empty: none.
void dry_run_on_ranks(const TrainConfig& config, Device& device, std::int64_t ranks,
                      const std::string& name, const std::vector<std::string>& settings,
                      const std::string& svg);

}  // namespace longstride::cli
