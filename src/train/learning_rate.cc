#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longstride {

double learning_rate_at(const ScheduleConfig& schedule, double peak, std::int64_t step,
                        std::int64_t total) {
  LS_CHECK(step >= 1 && total >= 1, "step {} of {}", step, total);
  const std::int64_t warmup =
      std::max<std::int64_t>(schedule.warmup_steps, 1);  // the step at the peak
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (schedule.kind == "constant") return peak;
  const double progress =
      total <= warmup
          ? 1.0
          : std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total - warmup));
  LS_CHECK(schedule.kind == "cosine" || schedule.kind == "linear", "schedule {}", schedule.kind);
  const double remaining = schedule.kind == "linear"
                               ? 1.0 - progress
                               : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * (schedule.final_fraction + (1.0 - schedule.final_fraction) * remaining);
}

}  // namespace longstride
