// The plan of a step for all processes that share a stage's heads: they compute the same tasks, so
// what is retained and what is recomputed must be the same.
#pragma once

#include "comm/message_link.h"
#include "train/run_plan.h"

namespace longstride {

// Each has planned for its own memory; all take the plan of the one with the least room. Does
// nothing where no heads are shared. All ranks call it, after plan_run.
void share_step_plan(RunPlan& plan, comm::MessageLink& link);

}  // namespace longstride
