// The parts of a model that a stage of a pipeline has. A stage is run like a whole model, with a
// configuration, a list of parameters and a record of its own.
#pragma once

#include <vector>

#include "model/config.h"
#include "model/parameter_specs.h"
#include "schedule/numerics.h"
#include "schedule/stage.h"

namespace longstride {

struct StageParts {
  Stage stage;
  ModelConfig config;  // of its layers, counted from 0
  // By the model's names, in its order and numbered by it; a copy of another stage's comes last.
  std::vector<ParameterSpec> parameters;
  NumericsRecord numerics;
};

// Layers [first, end) of a model. The embedding belongs to the stage with the first layer, the
// final norm and the head to the one with the last. A tied embedding is trained in the first stage;
// the last one has a copy of its weight as head (TiedPart, train/tied_stages.h). That needs
// gradients that are summed apart: throws Error where a run of an older record sums them together
// and a stage does not have all layers.
StageParts stage_parts(const ModelConfig& config, const std::vector<ParameterSpec>& parameters,
                       const NumericsRecord& numerics, std::int64_t first, std::int64_t end);

}  // namespace longstride
