// Rotary frequencies of a model, in double precision, by the formulas of transformers'
// modeling_rope_utils.
#pragma once

#include <vector>

#include "model/config.h"

namespace longstride {

struct RopeFrequencies {
  std::vector<double> frequencies;  // [head_size / 2]: pair i turns by position * frequencies[i]
  double attention_factor = 1.0;    // multiplies cos and sin (yarn; 1 otherwise)
};

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_size);
// Of layers that have no others.
RopeFrequencies rope_frequencies(const ModelConfig& config);

}  // namespace longstride
