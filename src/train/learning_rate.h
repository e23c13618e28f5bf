// The learning rate of a step.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace longstride {

// Steps count from 1 to `total`. Warm-up is linear from peak / warmup_steps at step 1 to peak at
// step warmup_steps; then cosine or linear down to peak * final_fraction at `total`, or constant.
// Without warm-up, step 1 has the peak.
double learning_rate_at(const ScheduleConfig& schedule, double peak, std::int64_t step,
                        std::int64_t total);

}  // namespace longstride
