// What the forward and the backward pass of a layer's attention share.
#pragma once

#include "model/layer.h"

namespace longstride {

Lease attention_scratch(const LayerPass& pass);

// Where the model normalises queries: normalises and rotates those that are held, in place or into
// a tensor of its own (absent in place).
Lease rotated_queries(const LayerPass& pass, const LayerActivations& held, bool in_place);

}  // namespace longstride
