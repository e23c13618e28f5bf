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

// In its place if it outlives the episode, else in the workspace.
Lease take(const LayerPass& pass, const View& place, const char* name, Shape shape) {
  return place.present() ? Lease(place) : pass.ctx.take(name, shape);
}

// q, and k if there is a norm, in the form in which they are retained.
void project_queries(const LayerPass& pass, ConstView x_TD, LayerActivations& held) {
  const ChunkContext& ctx = pass.ctx;
  const LayerParameters& w = pass.weights;
  const Sizes s(ctx);
  held.q_THC = take(pass, pass.places.q_THC, "q", {s.T, s.H, s.C});
  const View q_THC = held.q_THC;
  {
    const Lease h_TW = normed_input(pass, "normed input", Input::kAttention, x_TD, w.input_norm);
    project(pass, projection::kQ, h_TW, q_THC.reshaped({s.T, s.H * s.C}));
    if (w.q_norm.present() && pass.task.keys_too) {
      held.k_TKC = take(pass, pass.places.k_TKC, "k before its norm", {s.T, s.K, s.C});
      project(pass, projection::kK, h_TW, held.k_TKC.view().reshaped({s.T, s.K * s.C}));
    }
  }
  if (!w.q_norm.present()) ops::rope(ctx.stream(), {q_THC, ctx.cos_TN, ctx.sin_TN, false});
}

void attend(const LayerPass& pass, LayerActivations& held) {
  const ChunkContext& ctx = pass.ctx;
  const Sizes s(ctx);
  const bool retains_q = pass.task.retains.has(Retained::kQ);
  Lease rotated_THC;  // if q is retained unrotated
  if (pass.weights.q_norm.present()) rotated_THC = rotated_queries(pass, held, !retains_q);
  const View q_THC = rotated_THC.present() ? rotated_THC : held.q_THC;
  const AttendedChunk a = ctx.attended();
  const Lease q_heads = to_heads(pass, "q of heads", q_THC);
  const View attending_THC = q_heads.present() ? q_heads : q_THC;
  if (pass.task.sparse) {
    if (pass.task.selects) pass.selector->select(pass, attending_THC);
    pass.selector->settle(pass.task, pass.pages);
  }
  held.attention_THC = take(pass, pass.places.attention_THC, "attention", {s.T, s.H, s.C});
  held.lse_HT = pass.places.lse_HT.present() ? Lease(pass.places.lse_HT)
                                             : ctx.take_f32("lse", {a.query_heads, a.tokens});
  Lease out_heads;
  if (ctx.shared.share.several())
    out_heads = ctx.take("attention of heads", {a.tokens, a.query_heads, s.C});
  const Lease scratch = attention_scratch(pass);
  const VisitsView visits = visits_of(pass);
  for_segments(pass.pages, pass.task, [&](std::span<const KeySegment> segments) {
    ops::paged_attention_forward(ctx.stream(),
                                 {.q_THC = attending_THC,
                                  .kv = pass.pages.kv(pass.task.layer),
                                  .visits = visits,
                                  .out_THC = out_heads.present() ? out_heads : held.attention_THC,
                                  .lse_HT = held.lse_HT,
                                  .scale = attention_scale(ctx.config),
                                  .scratch = scratch,
                                  .exact = ctx.exact,
                                  .segments = segments,
                                  .codes = pass.pages.codes(pass.task)});
  });
  if (out_heads.present()) to_tokens(pass, out_heads, held.attention_THC);
}

// Selects pages without attending to them yet.
void select(const LayerPass& pass, const LayerActivations& held) {
  Lease rotated_THC;
  if (pass.weights.q_norm.present()) rotated_THC = rotated_queries(pass, held, false);
  const View q_THC = rotated_THC.present() ? rotated_THC : held.q_THC;
  const Lease q_heads = to_heads(pass, "q of heads", q_THC);
  pass.selector->select(pass, q_heads.present() ? q_heads : q_THC);
}

// x + f W^T + b, the product normalised if there is a norm.
Lease add_product(const LayerPass& pass, Lease next_TD, ConstView f_TW,
                  const Projection& projection, ConstView norm, ConstView x_TD) {
  project(pass, projection, f_TW, next_TD, norm.present() ? ConstView() : x_TD);
  if (norm.present()) add_normed(pass.ctx, norm, x_TD, next_TD);
  return next_TD;
}

void project_gate_and_up(const LayerPass& pass, const LayerWork& work, LayerActivations& held) {
  const Sizes s(pass.ctx);
  if (work.gate) held.gate_TF = take(pass, pass.places.gate_TF, "gate", {s.T, s.F});
  if (work.up) held.up_TF = take(pass, pass.places.up_TF, "up", {s.T, s.F});
  const Lease h_TW =
      normed_input(pass, "normed mid", Input::kFeedForward, held.mid_TD, pass.weights.post_norm);
  if (work.gate) project(pass, projection::kGate, h_TW, held.gate_TF);
  if (work.up) project(pass, projection::kUp, h_TW, held.up_TF);
}

Lease output_of(const LayerPass& pass, LayerActivations& held) {
  const ChunkContext& ctx = pass.ctx;
  const Sizes s(ctx);
  // A gate that is not read again is overwritten by the product.
  const bool in_place =
      !pass.task.retains.has(Retained::kGate) && input_width(pass, Input::kProduct, s.F) == s.F;
  Lease made_TW;
  if (!in_place) made_TW = gated_input(pass, held.gate_TF, held.up_TF);
  const View product_TW = in_place ? held.gate_TF : made_TW;
  if (in_place)
    ops::swiglu_forward(ctx.stream(),
                        {held.gate_TF, held.up_TF, product_TW, activation_of(ctx.config)});
  return add_product(pass, take(pass, pass.output_place, "residual", {s.T, s.D}), product_TW,
                     projection::kDown, pass.weights.ffn_norm, held.mid_TD);
}

}  // namespace

VisitsView visits_of(const LayerPass& pass) {
  return pass.task.sparse ? pass.selector->visits(pass.task) : pass.visits;
}

Lease attention_scratch(const LayerPass& pass) {
  const AttendedChunk a = pass.ctx.attended();
  const auto [selected, in_union] =
      pass.task.sparse ? pass.selector->most(pass.task.layer) : PageSelector::Most{};
  return pass.ctx.take_f32(
      "attention scratch",
      {ops::paged_attention_scratch_elements(
          pass.ctx.stream(), {.tokens = a.tokens,
                              .query_heads = a.query_heads,
                              .kv_heads = a.kv_heads,
                              .head_size = pass.ctx.config.head_size,
                              .page_tokens = pass.pages.kv(pass.task.layer).page_tokens,
                              .compute = pass.ctx.compute,
                              .selected_pages = selected,
                              .union_pages = in_union})});
}

Lease rotated_queries(const LayerPass& pass, const LayerActivations& held, bool in_place) {
  const ChunkContext& ctx = pass.ctx;
  const Sizes s(ctx);
  Lease made_THC;
  if (!in_place) made_THC = ctx.take("rotated q", {s.T, s.H, s.C});
  const View q_THC = in_place ? held.q_THC : made_THC;
  const ConstView norm = pass.weights.q_norm;
  rms_norm(ctx, norm_rows(held.q_THC, norm), norm, norm_rows(q_THC, norm));
  ops::rope(ctx.stream(), {q_THC, ctx.cos_TN, ctx.sin_TN, false});
  return made_THC;
}

void layer_store_kv(const LayerPass& pass, ConstView x_TD) {
  const ChunkContext& ctx = pass.ctx;
  const LayerParameters& w = pass.weights;
  const Sizes s(ctx);
  const Lease h_TW = normed_input(pass, "normed input", Input::kAttention, x_TD, w.input_norm);
  const Lease k = ctx.take("k", {s.T, s.K * s.C}), v = ctx.take("v", {s.T, s.K * s.C});
  project(pass, projection::kK, h_TW, k);
  project(pass, projection::kV, h_TW, v);
  if (w.k_norm.present()) rms_norm(ctx, norm_rows(k, w.k_norm), w.k_norm, norm_rows(k, w.k_norm));
  const View k_TKC = k.view().reshaped({s.T, s.K, s.C}), v_TKC = v.view().reshaped({s.T, s.K, s.C});
  const Lease k_heads = to_heads(pass, "k of heads", k_TKC),
              v_heads = to_heads(pass, "v of heads", v_TKC);
  const AttendedChunk a = ctx.attended();
  ops::append_kv(ctx.stream(),
                 {k_heads.present() ? k_heads : k_TKC, v_heads.present() ? v_heads : v_TKC,
                  a.cos_TN, a.sin_TN, pass.pages.kv(pass.task.layer), a.begin});
  // Before keys are rounded to 8 bits: rounding would only change which pages are selected.
  if (pass.task.sparse) pass.selector->summarize(pass);
  pass.pages.keep_appended(pass.task);
}

Lease layer_forward(const LayerPass& pass, Lease x_TD, LayerActivations& held) {
  const Task& task = pass.task;
  const LayerWork work = forward_work(task);
  const Sizes s(pass.ctx);
  if (x_TD.present()) held.input_TD = std::move(x_TD);
  const auto give_back = [&](Retained which, auto&... tensors) {
    if (!task.retains.has(which)) (tensors.release(), ...);
  };

  if (work.q) project_queries(pass, held.input_TD, held);
  if (work.attention)
    attend(pass, held);
  else if (task.selects)
    select(pass, held);
  give_back(Retained::kQ, held.q_THC, held.k_TKC);
  if (work.mid) {
    Lease mid_TD = take(pass, pass.places.mid_TD, "residual", {s.T, s.D});
    const WideInput attention =
        wide_input(pass, Input::kOutput, held.attention_THC.view().reshaped({s.T, s.H * s.C}));
    held.mid_TD = add_product(pass, std::move(mid_TD), attention.view, projection::kO,
                              pass.weights.attention_norm, held.input_TD);
  }
  give_back(Retained::kInput, held.input_TD);
  give_back(Retained::kAttention, held.attention_THC, held.lse_HT);
  if (work.gate || work.up) project_gate_and_up(pass, work, held);
  Lease output_TD;
  if (task.output) output_TD = output_of(pass, held);
  give_back(Retained::kMid, held.mid_TD);
  give_back(Retained::kGate, held.gate_TF);
  give_back(Retained::kUp, held.up_TF);
  return output_TD;
}

}  // namespace longstride
