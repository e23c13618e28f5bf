// Model FLOPs of a planned step: the arithmetic that training on one document of plan.max_tokens
// requires, whatever the plan computes twice. The definition is that of observe/flops.h, which
// `bench step` and `train` report.
#pragma once

#include "model/config.h"
#include "plan/step_plan.h"

namespace longstride {

double step_model_flops(const ModelConfig& config, const StepPlan& plan);

}  // namespace longstride
