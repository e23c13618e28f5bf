#include "model/layer.h"
#include "model/layer_attention.h"
#include "model/layer_inputs.h"
#include "model/layer_outputs.h"
#include "model/page_selector.h"
#include "ops/paged_attention.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace longstride {
namespace {

// From dx, the gradient of down(swiglu(gate, up)): those of gate and up in their places, and down's
// +=. The product takes the place of its own gradient, so each of them passes through memory once.
void down_backward(const LayerPass& pass, const LayerParameters& g, LayerActivations& held,
                   ConstView dx_TD) {
  const ChunkContext& ctx = pass.ctx;
  const Projection& down = projection::kDown;
  const ConstView weight = pass.weights.*down.weight;
  const View dw = g.*down.weight, db = g.*down.bias;
  const Lease product_TF = ctx.take("d swiglu", held.gate_TF.view().shape());
  linear_backward(ctx, dx_TD, {}, weight, product_TF, {}, {}, false, pass.weights.*down.tail);
  ops::swiglu_backward(ctx.stream(),
                       {product_TF, held.gate_TF, held.up_TF, held.gate_TF, held.up_TF,
                        activation_of(ctx.config), dw.present() ? product_TF.view() : View()});
  if (dw.present() || db.present()) linear_backward(ctx, dx_TD, product_TF, weight, {}, dw, db);
}

// out = mid + down(swiglu(gate(h), up(h))), h = norm(mid), and what is added may be normalised too.
// dx: gradient of out, becomes that of mid.
void feed_forward_backward(const LayerPass& pass, const LayerParameters& g, LayerActivations& held,
                           View dx_TD) {
  const ChunkContext& ctx = pass.ctx;
  const LayerParameters& w = pass.weights;
  const std::int64_t T = ctx.tokens, F = ctx.config.ffn_size;
  if (input_width(pass, Input::kProduct, F) == F && !w.ffn_norm.present()) {
    down_backward(pass, g, held, dx_TD);
  } else {
    const Lease d_product_TF = ctx.take("d swiglu", {T, F});
    {
      const Lease product_TW = gated_input(pass, held.gate_TF, held.up_TF);
      const OutputGradient d_out(pass, projection::kDown, product_TW, w.ffn_norm, g.ffn_norm,
                                 dx_TD);
      InputGradient d_product(pass, g, Input::kProduct, product_TW, d_product_TF);
      d_product.add(projection::kDown, d_out);
      d_product.finish();
    }
    ops::swiglu_backward(ctx.stream(), {d_product_TF, held.gate_TF, held.up_TF, held.gate_TF,
                                        held.up_TF, activation_of(ctx.config)});
  }
  const Lease dh_TD = ctx.take("d normed mid", dx_TD.shape());
  {
    const Lease h_TW =
        normed_input(pass, "normed mid", Input::kFeedForward, held.mid_TD, w.post_norm);
    InputGradient d_input(pass, g, Input::kFeedForward, h_TW, dh_TD);
    d_input.add(projection::kGate, held.gate_TF);
    d_input.add(projection::kUp, held.up_TF);
    d_input.finish();
  }
  held.gate_TF.release();
  held.up_TF.release();
  rms_norm_backward(ctx, dh_TD, held.mid_TD, w.post_norm, dx_TD, g.post_norm, true);
  held.mid_TD.release();
}

// Returns dq of the rotated queries; gradient pages +=.
Lease attention_backward(const LayerPass& pass, const LayerParameters& g,
                         const LayerActivations& held, ConstView q_THC, ConstView dx_TD) {
  const ChunkContext& ctx = pass.ctx;
  const std::int64_t T = ctx.tokens, H = ctx.config.query_heads, C = ctx.config.head_size;
  Lease dq_THC = ctx.take("dq", {T, H, C});
  const Lease d_attention_THC = ctx.take("d attention", {T, H, C});
  {
    const LayerParameters& w = pass.weights;
    const WideInput wide =
        wide_input(pass, Input::kOutput, held.attention_THC.view().reshaped({T, H * C}));
    const OutputGradient d_out(pass, projection::kO, wide.view, w.attention_norm, g.attention_norm,
                               dx_TD);
    InputGradient d_input(pass, g, Input::kOutput, wide.view,
                          d_attention_THC.view().reshaped({T, H * C}));
    d_input.add(projection::kO, d_out);
    d_input.finish();
  }
  const bool shared = ctx.shared.share.several();
  const AttendedChunk a = ctx.attended();
  const Lease q_heads = to_heads(pass, "q of heads", q_THC),
              out_heads = to_heads(pass, "attention of heads", held.attention_THC),
              dout_heads = to_heads(pass, "d attention of heads", d_attention_THC);
  Lease dq_heads;
  if (shared) dq_heads = ctx.take("dq of heads", {a.tokens, a.query_heads, C});
  const Lease scratch = attention_scratch(pass);
  // Hot pages are those of all chunks.
  if (pass.task.sparse) pass.selector->settle_all(pass.pages);
  const VisitsView visits = visits_of(pass);
  for_segments(pass.pages, pass.task, [&](std::span<const KeySegment> segments) {
    ops::paged_attention_backward(ctx.stream(),
                                  {.q_THC = shared ? q_heads : q_THC,
                                   .out_THC = shared ? out_heads : held.attention_THC,
                                   .lse_HT = held.lse_HT,
                                   .dout_THC = shared ? dout_heads : d_attention_THC,
                                   .kv = pass.pages.kv(pass.task.layer),
                                   .kv_gradient = pass.pages.gradients(pass.task.layer),
                                   .visits = visits,
                                   .dq_THC = shared ? dq_heads : dq_THC,
                                   .scale = attention_scale(ctx.config),
                                   .scratch = scratch,
                                   .exact = ctx.exact,
                                   .segments = segments,
                                   .rounding = pass.rounding,
                                   .codes = pass.pages.codes(pass.task)});
    pass.pages.keep_gradients(pass.task);
  });
  if (shared) to_tokens(pass, dq_heads, dq_THC);
  return dq_THC;
}

// The complete gradients of the chunk's keys and values, of the slice where processes share heads.
void take_kv_gradient(const LayerPass& pass, View dk_TKC, View dv_TKC) {
  const ChunkContext& ctx = pass.ctx;
  const AttendedChunk a = ctx.attended();
  const bool shared = ctx.shared.share.several();
  const Shape of_heads{a.tokens, a.kv_heads, ctx.config.head_size};
  Lease dk_heads, dv_heads;
  if (shared) dk_heads = ctx.take("dk of heads", of_heads);
  if (shared) dv_heads = ctx.take("dv of heads", of_heads);
  ops::take_kv_gradient(ctx.stream(),
                        {pass.pages.gradients(pass.task.layer), a.begin, a.cos_TN, a.sin_TN,
                         shared ? dk_heads : dk_TKC, shared ? dv_heads : dv_TKC});
  if (!shared) return;
  to_tokens(pass, dk_heads, dk_TKC);
  to_tokens(pass, dv_heads, dv_TKC);
}

}  // namespace

void layer_backward(const LayerPass& pass, const LayerParameters& g, LayerActivations held,
                    View dx_TD) {
  const ChunkContext& ctx = pass.ctx;
  const LayerParameters& w = pass.weights;
  const std::int64_t T = ctx.tokens, H = ctx.config.query_heads, K = ctx.config.kv_heads,
                     C = ctx.config.head_size;

  feed_forward_backward(pass, g, held, dx_TD);

  Lease dq_THC;
  if (w.q_norm.present()) {
    const Lease q_THC = rotated_queries(pass, held, false);
    dq_THC = attention_backward(pass, g, held, q_THC, dx_TD);
  } else {
    dq_THC = attention_backward(pass, g, held, held.q_THC, dx_TD);
    held.q_THC.release();
  }
  held.attention_THC.release();
  held.lse_HT.release();

  ops::rope(ctx.stream(), {dq_THC, ctx.cos_TN, ctx.sin_TN, true});
  const Lease dk_TKC = ctx.take("dk", {T, K, C}), dv_TKC = ctx.take("dv", {T, K, C});
  take_kv_gradient(pass, dk_TKC, dv_TKC);
  if (w.q_norm.present()) {
    const View dq_rows = norm_rows(dq_THC, w.q_norm), dk_rows = norm_rows(dk_TKC, w.k_norm);
    rms_norm_backward(ctx, dq_rows, norm_rows(held.q_THC, w.q_norm), w.q_norm, dq_rows, g.q_norm,
                      false);
    rms_norm_backward(ctx, dk_rows, norm_rows(held.k_TKC, w.k_norm), w.k_norm, dk_rows, g.k_norm,
                      false);
    held.q_THC.release();
    held.k_TKC.release();
  }

  const Lease dh_TD = ctx.take("d normed input", dx_TD.shape());
  {
    const Lease h_TW =
        normed_input(pass, "normed input", Input::kAttention, held.input_TD, w.input_norm);
    InputGradient d_input(pass, g, Input::kAttention, h_TW, dh_TD);
    d_input.add(projection::kQ, dq_THC.view().reshaped({T, H * C}));
    d_input.add(projection::kK, dk_TKC.view().reshaped({T, K * C}));
    d_input.add(projection::kV, dv_TKC.view().reshaped({T, K * C}));
    d_input.finish();
  }
  rms_norm_backward(ctx, dh_TD, held.input_TD, w.input_norm, dx_TD, g.input_norm, true);
}

}  // namespace longstride
