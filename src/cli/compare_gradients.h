// Gradients of two runs side by side, by group of parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/parameters.h"

namespace longstride::cli {

// By Hugging Face name.
using HostGradients = std::map<std::string, std::vector<float>>;
HostGradients fetch_gradients(const ParameterSet& gradients);

// For each kind of parameter ("q_proj", "norm", "embed_tokens", ...) over all layers, and for all
// parameters: |a - b| / |b| and the cosine of the angle between a and b. Fetches one parameter of b
// at a time, so that a third copy of all never exists.
OrderedJson compare_gradients(const HostGradients& a, const ParameterSet& b);

}  // namespace longstride::cli
