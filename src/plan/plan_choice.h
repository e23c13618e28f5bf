// Chooses, within the memory that is left for a step, what stays on the device: pages or
// activations. Pages can stream from the host beside the arithmetic at little cost; activations
// that do not stay are recomputed. No choice changes a bit.
#pragma once

#include <functional>

#include "plan/machine_rates.h"
#include "plan/retention_choice.h"
#include "plan/step_plan.h"

namespace longstride {

// Bytes for the step on each tier: the device's for all of StepMemory::total(), the others for
// pages; of host memory that pages leave, activations may take so much.
struct StepLimits : PageBudget {
  std::int64_t activations = 0;
};
// Of host memory that is for pages and activations, at most half is for activations: they save
// time, and what else wants host memory (copies of checkpoints, other programs) should get some.
inline std::int64_t activations_of(std::int64_t host) { return host / 2; }

struct ChosenPlan {
  StepPlan plan;
  RetentionChoice retention;  // what the plan retains
};

// Planning is by `planner_of`, which records the episodes of its options.
using PlannerOf = std::function<StepPlanner(const StepOptions&)>;

// The plan with the least time by prediction (plan/step_cost.h): pages stay on the device and
// activations get what they leave; or pages get no more than it takes to stream them, or to keep
// them off the disk, and activations come first; and episodes retain for their own backward pass
// what the options say, or less. `options.across_episodes` and `options.pages` are
// ignored. Throws Error if nothing fits, as StepPlanner::plan does.
ChosenPlan choose_plan(const PlannerOf& planner_of, const ModelConfig& config,
                       const NumericsRecord& numerics, const StepOptions& options,
                       const StepLimits& limits, const MachineRates& rates);

// The same with pages as told: activations get what they leave of the device's bytes.
ChosenPlan retain_beside(const PageBudget& pages, const PlannerOf& planner_of,
                         const ModelConfig& config, const NumericsRecord& numerics,
                         const StepOptions& options, std::int64_t device_bytes,
                         const MachineRates& rates);

}  // namespace longstride
