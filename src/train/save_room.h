// What checkpoints will take of a disk, and what it has.
#pragma once

#include "train/run_plan.h"

namespace longstride {

// Fills `needs.saves` from the rest of the plan. Warns where the disk has room for one, but not for
// all that the run is going to keep.
void plan_saves(RunPlan& plan);

}  // namespace longstride
