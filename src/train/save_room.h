// Disk space that checkpoints will need, and that the disk has.
#pragma once

#include "train/run_plan.h"

namespace longstride {

// Fills `needs.saves` from the rest of the plan. Warns if the disk has space for one save, but not
// for all that the run will keep.
void plan_saves(RunPlan& plan);

}  // namespace longstride
