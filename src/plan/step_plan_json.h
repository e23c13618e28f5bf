// A StepPlan as JSON, and back.
#pragma once

#include <string>

#include "base/json.h"
#include "plan/step_plan.h"

namespace longstride {

OrderedJson to_json(const StepPlan& plan);
// The plan that to_json wrote. Throws Error naming `where` if something is missing or of the wrong
// type. Placements are checked as after planning.
StepPlan step_plan_from_json(const Json& json, const std::string& where);

}  // namespace longstride
