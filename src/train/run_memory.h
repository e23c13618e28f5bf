// Places the tenants of a run on device, in host memory and on disk, from the budgets of `[memory]`
// and the free memory.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/machine_rates.h"
#include "train/run_plan.h"

namespace longstride {

// For searches: kFit only finds out whether the run fits. kQuick does so in a fraction of the time,
// but may find that a run does not fit which barely does.
enum class Effort { kBest, kFit, kQuick };

// Longer contexts, or more layers of chunks, are refused: planning them would take minutes and
// gigabytes, and training on them years.
inline constexpr std::int64_t kMostPlannedTokens = std::int64_t{1} << 26, kMostPlaces = 400'000;

// Fills `part`, `needs`, `step` and `state`; the rest of the plan must be complete. Throws Error if
// the budgets contradict each other or pages fit nowhere.
//
// Pages have priority for host memory: they are read many times a step, the optimizer's state once.
// So state that may go to disk gets the host memory that pages leave, and the disk takes the rest
// of both. Activations that stay compete with the state for host memory: what is predicted to be
// faster is planned.
//
// `rates` decide which activations stay, and whether pages make room for them.
void plan_memory(RunPlan& plan, Device& device, const MachineRates& rates,
                 Effort effort = Effort::kBest);

// Throws Error if the plan's model cannot be cut into so many stages, or so many processes cannot
// share its heads. Needs the plan's place, model and numerics alone.
void check_place(const RunPlan& plan);

// Free host memory or disk space less a reserve for other processes.
std::int64_t less_a_reserve(std::int64_t free);

// Device memory that a run may use: `wanted` (memory.gpu) or what is free, whichever is less. If
// the device has its own memory, a reserve is left for its driver and libraries; of `wanted`, and
// of a device that is not there, also the `libraries` (library_bytes), which otherwise are not
// free. `sharers`: processes on it, of which each gets the same part of what is free.
struct DeviceBudget {
  std::int64_t available = 0, reserve = 0;
};
DeviceBudget device_budget(const Device& device, std::optional<std::int64_t> wanted,
                           std::int64_t libraries, std::int64_t sharers = 1);

}  // namespace longstride
