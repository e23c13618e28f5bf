// Where the tenants of a run go: device, host memory and disk, from the budgets of `[memory]` and
// what is free.
#pragma once

#include <cstdint>
#include <optional>

#include "train/run_plan.h"

namespace longstride {

// Fills `needs`, `pages` and `state`; the rest of the plan is there already. Throws Error where the
// budgets contradict each other or pages fit nowhere.
//
// Off the device pages come first: they are read many times a step, the optimizer's state once. So
// where its state may go to the disk, of host memory it gets what pages leave, and the disk the
// rest of both.
void plan_memory(RunPlan& plan, Device& device);

// What a run may take of the device: `wanted` (memory.gpu), if that is free; else what is free but
// a reserve, where the device has memory of its own.
struct DeviceBudget {
  std::int64_t available = 0, reserve = 0;
};
DeviceBudget device_budget(const Device& device, std::optional<std::int64_t> wanted);

}  // namespace longstride
