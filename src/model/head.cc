#include "model/head.h"

#include <algorithm>

#include "ops/linear.h"

namespace longstride {

namespace {

// Runs the loss head over the normed output; without `dh_TD` it computes losses alone.
void run_head(const HeadPass& pass, const View& x_TD, const View& dh_TD, const HeadLosses& host) {
  const ChunkContext& ctx = pass.ctx;
  const std::int64_t T = ctx.tokens;
  const Lease targets_T = ctx.workspace.take("targets", DType::kI32, {T});
  const Lease losses_T = ctx.take_f32("losses", {T});
  const Lease correct_T = ctx.workspace.take("correct", DType::kI32, {T});
  if (!host.targets.empty())
    ctx.device.copy_from_host(targets_T.view().data(), host.targets.data(),
                              targets_T.view().bytes());
  Lease weights_T, earlier_T;
  if (pass.weighted) weights_T = ctx.take_f32("weights of targets", {T});
  if (pass.weighted) earlier_T = ctx.take_f32("earlier log-probabilities", {T});
  const auto given = [&](const Lease& lease, std::span<const float> values) {
    if (values.empty()) return ConstView();
    ctx.device.copy_from_host(lease.view().data(), values.data(), lease.view().bytes());
    return ConstView(lease.view());
  };
  const std::int64_t rows = std::min(pass.block_rows, T);
  {
    const Lease h_TD = ctx.take("normed output", x_TD.shape());
    rms_norm(ctx, x_TD, pass.weights.final_norm, h_TD);
    const Lease scratch = ctx.take_f32(
        "logits",
        {ops::loss_head_scratch_elements(ctx.stream(), {rows, pass.weights.head, ctx.compute})});
    ops::loss_head(ctx.stream(), {.x_TD = h_TD,
                                  .w_VD = pass.weights.head,
                                  .targets_T = targets_T,
                                  .losses_T = losses_T,
                                  .correct_T = correct_T,
                                  .dx_TD = dh_TD,
                                  .dw_VD = dh_TD.present() ? pass.gradients.head : View(),
                                  .scale = pass.scale,
                                  .block_rows = rows,
                                  .scratch = scratch,
                                  .weights_T = given(weights_T, host.weights),
                                  .earlier_T = given(earlier_T, host.earlier),
                                  .clip = host.clip});
  }
  if (!host.targets.empty()) {
    ctx.device.copy_to_host_later(host.losses, losses_T.view().data(), losses_T.view().bytes());
    ctx.device.copy_to_host_later(host.correct, correct_T.view().data(), correct_T.view().bytes());
  }
}

}  // namespace

void head_forward(const HeadPass& pass, const Lease& x_TD, const HeadLosses& host) {
  run_head(pass, x_TD, {}, host);
}

Lease head_forward_backward(const HeadPass& pass, Lease x_TD, const HeadLosses& host) {
  Lease dh_TD = pass.ctx.take("d normed output", x_TD.view().shape());
  run_head(pass, x_TD, dh_TD, host);
  rms_norm_backward(pass.ctx, dh_TD, x_TD, pass.weights.final_norm, dh_TD,
                    pass.gradients.final_norm, false);
  return dh_TD;
}

void head_logits(const ChunkContext& ctx, const ModelParameters& weights, const Lease& x_TD,
                 float* host) {
  // Rows of the head whose conversion to F32 is held at once, where it is stored in another type.
  constexpr std::int64_t kRows = 8192;
  const std::int64_t V = weights.head.dim(0), D = ctx.config.hidden_size;
  const Lease logits_V = ctx.take_f32("logits", {V});
  const Lease h_D = ctx.take("normed output", {1, D});
  rms_norm(ctx, x_TD.view().rows(ctx.tokens - 1, 1), weights.final_norm, h_D);
  Lease wide_D;
  if (ctx.compute != DType::kF32) {
    wide_D = ctx.take_f32("normed output", {1, D});
    copy(ctx, h_D, wide_D);
  }
  const View row = wide_D.present() ? wide_D : h_D;
  for (std::int64_t v = 0; v < V; v += kRows) {
    const std::int64_t rows = std::min(kRows, V - v);
    const View w = weights.head.rows(v, rows);
    const std::int64_t n = ops::linear_scratch_elements(ctx.stream(), {1, w, DType::kF32});
    const Lease scratch = n > 0 ? ctx.take_f32("linear scratch", {n}) : Lease();
    ops::linear_forward(ctx.stream(), {.x_RI = row,
                                       .w_OI = w,
                                       .y_RO = logits_V.view().rows(v, rows).reshaped({1, rows}),
                                       .scratch = scratch});
  }
  if (host != nullptr) ctx.device.copy_to_host(host, logits_V.view().data(), V * 4);
}

}  // namespace longstride
