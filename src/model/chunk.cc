#include "model/chunk.h"

#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/quantize.h"
#include "ops/rms_norm.h"

namespace longstride {
namespace {

// Mostly for weights of another type than the activations, which are converted first.
Lease linear_scratch(const ChunkContext& ctx, const ConstView& x, const ConstView& w) {
  const std::int64_t n = ops::linear_scratch_elements(ctx.stream(), {x.dim(0), w, ctx.compute});
  return n > 0 ? ctx.take_f32("linear scratch", {n}) : Lease();
}

// A quantized weight as activations are, for one product.
Lease widened(const ChunkContext& ctx, const ConstView& w, const ConstView& tail) {
  if (!is_block_format(w.dtype())) return {};
  const std::int64_t columns = w.dim(1) + (tail.present() ? tail.dim(1) : 0);
  Lease wide = ctx.take("widened weight", {w.dim(0), columns});
  ops::widen_weight(ctx.stream(), {.q_OI = w, .tail_OR = tail, .y_OW = wide});
  return wide;
}

}  // namespace

void linear(const ChunkContext& ctx, ConstView x, ConstView w, ConstView b, View y, ConstView add,
            ConstView tail) {
  const Lease wide = widened(ctx, w, tail);
  if (wide.present()) w = wide;
  const Lease scratch = linear_scratch(ctx, x, w);
  ops::linear_forward(ctx.stream(), {x, w, b, add, y, scratch});
}

void linear_backward(const ChunkContext& ctx, ConstView dy, ConstView x, ConstView w, View dx,
                     View dw, View db, bool accumulate_dx, ConstView tail) {
  LS_CHECK(!is_block_format(w.dtype()) || !dw.present(), "the gradient of a quantized weight");
  const Lease wide = dx.present() ? widened(ctx, w, tail) : Lease();
  if (wide.present()) w = wide;
  const Lease scratch = linear_scratch(ctx, dy, w);
  ops::linear_backward(ctx.stream(), {dy, x, w, dx, dw, db, scratch, accumulate_dx});
}

void rms_norm(const ChunkContext& ctx, ConstView x, ConstView w, View y) {
  if (!w.present()) return copy(ctx, x, y);
  ops::rms_norm_forward(ctx.stream(), {x, w, y, static_cast<float>(ctx.config.rms_eps),
                                       static_cast<float>(ctx.config.norm_offset)});
}

void rms_norm_backward(const ChunkContext& ctx, ConstView dy, ConstView x, ConstView w, View dx,
                       View dw, bool accumulate_dx) {
  if (!w.present()) {
    if (accumulate_dx) return ops::add(ctx.stream(), {dx, dy, dx});
    return copy(ctx, dy, dx);
  }
  const Lease scratch = ctx.take_f32(
      "norm sums", {ops::rms_norm_backward_scratch_elements(ctx.stream(), {x.dim(0), x.dim(1)})});
  ops::rms_norm_backward(ctx.stream(),
                         {dy, x, w, dx, dw, scratch, static_cast<float>(ctx.config.rms_eps),
                          accumulate_dx, static_cast<float>(ctx.config.norm_offset)});
}

void copy(const ChunkContext& ctx, ConstView from, View to) {
  ops::convert(ctx.stream(), {from, to});
}

}  // namespace longstride
