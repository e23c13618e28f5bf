// Whether a run may go on from a checkpoint: it must compute what the one that saved it would have.
#pragma once

#include "train/run_plan.h"

namespace longstride {

// Of a plan with a resume point. Throws Error naming the setting that was changed, or the entry of
// the model's config.json. Paths may change: model and data are compared by what they hold. A model
// that is gone, and data that changed in their place, are told; so are changes of the optimizer,
// the schedule, the batch and the number of steps.
void check_same_run(const RunPlan& plan);

}  // namespace longstride
