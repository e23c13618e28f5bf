#include "model/layer.h"

#include "ops/paged_attention.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace longstride {
namespace {

// Sizes and the calls that forward and backward share.
struct Sizes {
  std::int64_t T, D, H, K, C, F;
  explicit Sizes(const ChunkContext& ctx)
      : T(ctx.tokens),
        D(ctx.config.hidden_size),
        H(ctx.config.query_heads),
        K(ctx.config.kv_heads),
        C(ctx.config.head_size),
        F(ctx.config.ffn_size) {}
};

Lease attention_scratch(const LayerPass& pass) {
  const Sizes s(pass.ctx);
  return pass.ctx.take_f32(
      "attention scratch",
      {ops::paged_attention_scratch_elements(
          pass.ctx.stream(), {s.T, s.H, s.K, s.C, pass.kv.page_tokens, pass.ctx.compute})});
}

// Normalises (where the model does) and rotates q, in place.
void finish_q(const LayerPass& pass, View q_THC) {
  const Sizes s(pass.ctx);
  const View rows = q_THC.reshaped({s.T * s.H, s.C});
  if (pass.weights.q_norm.present()) rms_norm(pass.ctx, rows, pass.weights.q_norm, rows);
  ops::rope(pass.ctx.stream(), {q_THC, pass.ctx.cos_TN, pass.ctx.sin_TN, false});
}

Lease normed(const LayerPass& pass, const char* name, ConstView x_TD, ConstView weight) {
  Lease h_TD = pass.ctx.take(name, x_TD.shape());
  rms_norm(pass.ctx, x_TD, weight, h_TD);
  return h_TD;
}

}  // namespace

void layer_store_kv(const LayerPass& pass, ConstView x_TD) {
  const ChunkContext& ctx = pass.ctx;
  const LayerParameters& w = pass.weights;
  const Sizes s(ctx);
  const Lease h_TD = normed(pass, "normed input", x_TD, w.input_norm);
  const Lease k = ctx.take("k", {s.T, s.K * s.C}), v = ctx.take("v", {s.T, s.K * s.C});
  linear(ctx, h_TD, w.k, w.k_bias, k);
  linear(ctx, h_TD, w.v, w.v_bias, v);
  const View rows = k.view().reshaped({s.T * s.K, s.C});
  if (w.k_norm.present()) rms_norm(ctx, rows, w.k_norm, rows);
  ops::append_kv(ctx.stream(),
                 {k.view().reshaped({s.T, s.K, s.C}), v.view().reshaped({s.T, s.K, s.C}),
                  ctx.cos_TN, ctx.sin_TN, pass.kv, ctx.begin});
}

Lease layer_forward(const LayerPass& pass, Lease x_TD, KeptLayer* kept) {
  const ChunkContext& ctx = pass.ctx;
  const LayerParameters& w = pass.weights;
  const Sizes s(ctx);

  Lease attention_THC, lse_HT;
  {
    Lease q_THC = ctx.take("q", {s.T, s.H, s.C});
    const bool keep_raw_q = kept != nullptr && w.q_norm.present();
    {
      const Lease h_TD = normed(pass, "normed input", x_TD, w.input_norm);
      linear(ctx, h_TD, w.q, w.q_bias, q_THC.view().reshaped({s.T, s.H * s.C}));
      if (keep_raw_q) {
        kept->k_TKC = ctx.take("kept k", {s.T, s.K, s.C});
        linear(ctx, h_TD, w.k, w.k_bias, kept->k_TKC.view().reshaped({s.T, s.K * s.C}));
        kept->q_THC = ctx.take("kept q", {s.T, s.H, s.C});
        copy(ctx, q_THC, kept->q_THC);
      }
    }
    finish_q(pass, q_THC);
    attention_THC = ctx.take("attention", {s.T, s.H, s.C});
    lse_HT = ctx.take_f32("lse", {s.H, s.T});
    {
      const Lease scratch = attention_scratch(pass);
      for_parts(pass.pages, [&](const KeyPart& part) {
        ops::paged_attention_forward(ctx.stream(),
                                     {q_THC, pass.kv, pass.visits, attention_THC, lse_HT,
                                      attention_scale(ctx.config), scratch, ctx.exact, part});
      });
    }
    if (kept != nullptr && !keep_raw_q) kept->q_THC = std::move(q_THC);
  }

  // x + f W^T + b takes the place of x, whose earlier state may be kept.
  const auto add_to_stream = [&](ConstView f, ConstView weight, ConstView bias, Lease* keep_in) {
    Lease next = ctx.take("residual", {s.T, s.D});
    linear(ctx, f, weight, bias, next, x_TD);
    if (keep_in != nullptr) *keep_in = std::move(x_TD);
    x_TD = std::move(next);
  };
  add_to_stream(attention_THC.view().reshaped({s.T, s.H * s.C}), w.o, w.o_bias,
                kept != nullptr ? &kept->input_TD : nullptr);
  if (kept != nullptr) {
    kept->attention_THC = std::move(attention_THC);
    kept->lse_HT = std::move(lse_HT);
  } else {
    attention_THC.release();
    lse_HT.release();
  }

  Lease gate_TF = ctx.take("gate", {s.T, s.F}), up_TF = ctx.take("up", {s.T, s.F});
  {
    const Lease h_TD = normed(pass, "normed mid", x_TD, w.post_norm);
    linear(ctx, h_TD, w.gate, w.gate_bias, gate_TF);
    linear(ctx, h_TD, w.up, w.up_bias, up_TF);
  }
  if (kept == nullptr) {
    ops::swiglu_forward(ctx.stream(), {gate_TF, up_TF, gate_TF});
    add_to_stream(gate_TF, w.down, w.down_bias, nullptr);
    return x_TD;
  }
  const Lease product_TF = ctx.take("swiglu", {s.T, s.F});
  ops::swiglu_forward(ctx.stream(), {gate_TF, up_TF, product_TF});
  add_to_stream(product_TF, w.down, w.down_bias, &kept->mid_TD);
  if (!ctx.rebuild_feed_forward) {
    kept->gate_TF = std::move(gate_TF);
    kept->up_TF = std::move(up_TF);
  }
  return x_TD;
}

}  // namespace longstride
