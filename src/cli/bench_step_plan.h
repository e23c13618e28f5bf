// The plan of `bench step`. Where memory is too small for it, one Error says what would do and what
// the automatic plan would be.
#pragma once

#include "cli/bench_step_options.h"

namespace longstride::cli {

struct PlannedStep {
  StepPlan plan;
  double saved_flops = 0;  // of recomputation
};

// With --plan auto, pages and activations share the device's memory. Throws Error if the plan does
// not fit.
PlannedStep plan_of(const StepBenchOptions& o, const Engine& engine, const NumericsRecord& numerics,
                    const StepOptions& options);

// Throws Error if the pages of a context are so many that planning it is no use.
void check_context(const StepBenchOptions& o, const Engine& engine, const NumericsRecord& numerics,
                   const StepOptions& options);

}  // namespace longstride::cli
