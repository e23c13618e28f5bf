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

// What stays free on a device with memory of its own where we take what is free (no memory.gpu), in
// bytes: some of it is taken later, as it is met. Lists of attention over very long contexts have
// up to 16 buffers of some MiB each, kernels are loaded at their first use (libraries', and those
// that cuDNN makes for a new length), and every allocation is rounded up to 2 MiB. `total` is all
// memory of the device. None on a device that shares the host's memory.
std::int64_t device_reserve(std::int64_t total);
// What a run may take of the device: what is free but that reserve, or `wanted` if it is free.
struct DeviceBudget {
  std::int64_t available = 0, reserve = 0;
};
DeviceBudget device_budget(const Device& device, std::optional<std::int64_t> wanted);

}  // namespace longstride
