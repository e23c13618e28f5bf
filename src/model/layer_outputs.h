// What a layer's two parts, attention and feed-forward, add to the residual stream:
//   next = x + norm(f W^T + b)
// in families that normalise it (OLMo 2, Gemma 3). The product before the norm is not retained: the
// backward pass computes it again.
#pragma once

#include "model/layer_inputs.h"

namespace longstride {

// next = x + norm(next).
void add_normed(const ChunkContext& ctx, ConstView norm, ConstView x_TD, View next_TD);

// The gradient of the product f W^T + b, from `dx`, that of next. It is dx itself if there is no
// norm; else it has memory of its own and the norm's gradient += (unless that is absent).
class OutputGradient {
 public:
  OutputGradient(const LayerPass& pass, const Projection& projection, ConstView f, ConstView norm,
                 View norm_gradient, ConstView dx_TD);
  operator ConstView() const { return view_; }  // NOLINT(google-explicit-constructor)

 private:
  Lease made_TD_;
  ConstView view_;
};

}  // namespace longstride
