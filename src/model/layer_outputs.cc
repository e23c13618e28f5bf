#include "model/layer_outputs.h"

#include "ops/elementwise.h"

namespace longstride {

void add_normed(const ChunkContext& ctx, ConstView norm, ConstView x_TD, View next_TD) {
  rms_norm(ctx, next_TD, norm, next_TD);
  ops::add(ctx.stream(), {x_TD, next_TD, next_TD});
}

OutputGradient::OutputGradient(const LayerPass& pass, const Projection& projection, ConstView f,
                               ConstView norm, View norm_gradient, ConstView dx_TD)
    : view_(dx_TD) {
  if (!norm.present()) return;
  const ChunkContext& ctx = pass.ctx;
  made_TD_ = ctx.take("d output before its norm", dx_TD.shape());
  const Lease product_TD = ctx.take("output before its norm", dx_TD.shape());
  project(pass, projection, f, product_TD);
  rms_norm_backward(ctx, dx_TD, product_TD, norm, made_TD_, norm_gradient, false);
  view_ = made_TD_;
}

}  // namespace longstride
