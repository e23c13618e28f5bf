// The pools of a step's pages: their types, and what they take on each tier.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "plan/step_plan.h"
#include "schedule/numerics.h"

namespace longstride::cli {

// Keys and values first, then gradients.
OrderedJson page_pools_to_json(const StepPlan& plan, const NumericsRecord& numerics);
// A line per pool.
std::vector<std::string> describe_page_pools(const StepPlan& plan, const NumericsRecord& numerics);

}  // namespace longstride::cli
