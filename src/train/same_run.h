// Whether a run may go on from a checkpoint: it must compute what the one that saved it would have.
#pragma once

#include <filesystem>

#include "train/checkpoint.h"
#include "train/run_plan.h"

namespace longstride {

// Throws Error naming the setting that was changed. The paths of the data may, to where the same
// data are; data that changed in their place are warned of.
void check_same_run(const RunPlan& plan, const TrainState& saved,
                    const std::filesystem::path& directory);

}  // namespace longstride
