// Shared by the forward and the backward pass of a layer's attention.
#pragma once

#include "model/layer.h"

namespace longstride {

// The visit lists of the pass, once the pages of a sparse layer are selected.
VisitsView visits_of(const LayerPass& pass);

// q or k, cut into rows that a norm is over: of one head each, or of all heads together.
inline View norm_rows(const View& x, const ConstView& norm) {
  return x.reshaped({x.elements() / norm.dim(0), norm.dim(0)});
}

// Where processes share heads: `x` of a slice and all heads, for all tokens and this process's
// heads (HeadExchange::to_heads). Else absent, and x itself is that.
Lease to_heads(const LayerPass& pass, const char* name, ConstView x_SHC);
// The way back: `x` = y.
void to_tokens(const LayerPass& pass, ConstView y_TGC, View x_SHC);

Lease attention_scratch(const LayerPass& pass);

// For models that normalise queries: normalises and rotates the held queries, in place (the result
// is then absent) or into a new tensor.
Lease rotated_queries(const LayerPass& pass, const LayerActivations& held, bool in_place);

}  // namespace longstride
