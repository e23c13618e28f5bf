// A step runner with a plan of its own, for tests that need no plan before.
#pragma once

#include "train/step.h"

namespace longstride {

inline StepRunner planned_runner(const ModelConfig& config, const ParameterSet& weights,
                                 const ParameterSet& gradients, const NumericsRecord& numerics,
                                 const StepOptions& options,
                                 const MakeMover& make_mover = nullptr) {
  return {config,
          weights,
          gradients,
          numerics,
          plan_step(weights.device(), config, weights.specs(), numerics, options),
          make_mover};
}

}  // namespace longstride
