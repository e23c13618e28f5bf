// bench step --update: optimizer updates after the step.
#pragma once

#include <string>

#include "base/json.h"
#include "train/optimizer.h"

namespace longstride::cli {

// Runs `updates` of them on the step's gradients: norm, clipping and AdamW, what a training step
// counts as its update. `where` is "device" or "host". Changes the weights.
OrderedJson bench_update(const ModelConfig& config, ParameterSet& weights,
                         const ParameterSet& gradients, std::int64_t updates,
                         const std::string& where);

}  // namespace longstride::cli
