// Checks that a run may resume from a checkpoint: it must compute what the original run would have.
#pragma once

#include "train/run_plan.h"

namespace longstride {

// For a plan with a resume point. Throws Error naming the setting that changed, or the entry of the
// model's config.json. Paths may change: model and data are compared by their contents. Reports a
// missing model, data that changed in place, and changes of the optimizer, the schedule, the batch
// and the number of steps.
void check_same_run(const RunPlan& plan);

}  // namespace longstride
