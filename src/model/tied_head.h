// Tied embeddings: one weight, which the lookup reads at the beginning of the model and the head at
// its end. New runs sum the gradients of the two apart and add them once per step, so that stages
// of a pipeline can do the same (NumericsRecord::tied_apart); older ones sum both in one tensor.
#pragma once

#include <vector>

#include "model/parameters.h"

namespace longstride {

// Marks a tied embedding that is trained, if there is one. After it is settled what is trained, and
// before weights and gradients are made from the list.
void sum_head_apart(std::vector<ParameterSpec>& specs);
// For the numerics record.
bool sums_head_apart(const std::vector<ParameterSpec>& specs);

// Gradient of the embedding += head_gradient(), which is 0 then. Once per step, after its last
// sequence and before gradients are read. Does nothing where they are not summed apart, or in
// different stages (train/tied_stages.h).
void add_head_gradient(ParameterSet& gradients);

}  // namespace longstride
