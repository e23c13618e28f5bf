// How the layers of a model are spread over the stages of a pipeline.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "schedule/numerics.h"

namespace longstride {

// Where each stage begins, and at the end the number of layers: the slowest stage is as quick as
// can be, by the FLOPs of sequences of so many tokens, the head's included. At most as many stages
// as layers.
std::vector<std::int64_t> spread_layers(const ModelConfig& config, const NumericsRecord& numerics,
                                        std::int64_t tokens, std::int64_t stages);

// The same for any costs of layers, with `last` added to the last stage.
std::vector<std::int64_t> spread_costs(const std::vector<double>& layers, double last,
                                       std::int64_t stages);

}  // namespace longstride
