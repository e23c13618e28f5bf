#include "model/layer_inputs.h"

#include "base/error.h"
#include "ops/adapter.h"
#include "tensor/stochastic_round.h"

namespace longstride {
namespace {

const View& stacked(const LayerPass& pass, Input input) { return pass.weights.*stacked_of(input); }

ops::Dropout dropout_of(const LayerPass& pass, Input input) {
  return {.key = mixed(pass.dropout_key, static_cast<std::int64_t>(input)),
          .first_token = pass.ctx.begin,
          .rate = pass.drops ? pass.weights.adapter_dropout : 0};
}

// What dropout leaves of an input; absent if the adapters have none. A pass that does not drop
// makes a copy, so that all passes take the same memory.
Lease dropped(const LayerPass& pass, Input input, ConstView x_TW) {
  if (pass.weights.adapter_dropout <= 0) return {};
  const ops::Dropout dropout = dropout_of(pass, input);
  Lease y_TI = pass.ctx.take("dropped input", {x_TW.dim(0), stacked(pass, input).dim(1)});
  ops::dropout_forward(pass.ctx.stream(), {x_TW, y_TI, dropout});
  return y_TI;
}

// Fills the adapters' columns; `x` is absent if the others are filled.
void fill_columns(const LayerPass& pass, Input input, ConstView x_TI, View xu_TW) {
  const Lease dropped_TI = dropped(pass, input, x_TI.present() ? x_TI : ConstView(xu_TW));
  ops::adapter_forward(
      pass.ctx.stream(),
      {.x_TI = x_TI, .dropped_TI = dropped_TI, .a_PI = stacked(pass, input), .xu_TW = xu_TW});
}

// The gradients of all A of an input, which are neighbours in memory; absent if they are frozen.
View stacked_gradient(const LayerParameters& gradients, Input input) {
  View all;
  for (const Projection& projection : projections_of(input)) {
    const View& a_RI = gradients.*projection.a;
    if (!a_RI.present()) continue;
    if (!all.present()) {
      all = a_RI;
      continue;
    }
    LS_CHECK(
        a_RI.data() == nullptr || a_RI.data() == static_cast<std::byte*>(all.data()) + all.bytes(),
        "the gradients of {} stacked adapters are no neighbours", all.dim(0));
    all = {all.data(), all.dtype(), {all.dim(0) + a_RI.dim(0), all.dim(1)}};
  }
  return all;
}

}  // namespace

std::int64_t input_width(const LayerPass& pass, Input input, std::int64_t columns) {
  const View& a_PI = stacked(pass, input);
  return columns + (a_PI.present() ? a_PI.dim(0) : 0);
}

Lease normed_input(const LayerPass& pass, const char* name, Input input, ConstView x_TD,
                   ConstView weight) {
  const std::int64_t T = x_TD.dim(0), D = x_TD.dim(1), W = input_width(pass, input, D);
  Lease h_TW = pass.ctx.take(name, {T, W});
  const bool copies = W != D && !weight.present();  // then the columns are filled with the others
  if (!copies) rms_norm(pass.ctx, x_TD, weight, h_TW);
  if (W != D) fill_columns(pass, input, copies ? x_TD : ConstView(), h_TW);
  return h_TW;
}

Lease gated_input(const LayerPass& pass, ConstView gate_TF, ConstView up_TF) {
  const std::int64_t T = gate_TF.dim(0), F = gate_TF.dim(1),
                     W = input_width(pass, Input::kProduct, F);
  Lease product_TW = pass.ctx.take("swiglu", {T, W});
  ops::swiglu_forward(pass.ctx.stream(),
                      {gate_TF, up_TF, product_TW, activation_of(pass.ctx.config)});
  if (W != F) fill_columns(pass, Input::kProduct, {}, product_TW);
  return product_TW;
}

WideInput wide_input(const LayerPass& pass, Input input, ConstView x_TI) {
  const std::int64_t W = input_width(pass, input, x_TI.dim(1));
  if (W == x_TI.dim(1)) return {Lease(), x_TI};
  WideInput wide{pass.ctx.take("input with adapters", {x_TI.dim(0), W}), {}};
  wide.view = wide.copy.view();
  fill_columns(pass, input, x_TI, wide.copy);
  return wide;
}

void project(const LayerPass& pass, const Projection& projection, ConstView x_TW, View y_TO,
             ConstView add_TO) {
  const LayerParameters& w = pass.weights;
  linear(pass.ctx, x_TW, w.*projection.weight, w.*projection.bias, y_TO, add_TO,
         w.*projection.tail);
}

InputGradient::InputGradient(const LayerPass& pass, const LayerParameters& gradients, Input input,
                             ConstView x_TW, View dx_TI)
    : pass_(pass), gradients_(gradients), input_(input), x_TW_(x_TW), dx_TI_(dx_TI) {
  if (stacked(pass, input).present())
    wide_TW_ = pass.ctx.take("d input with adapters", x_TW.shape());
}

void InputGradient::add(const Projection& projection, ConstView dy_TO) {
  const LayerParameters& w = pass_.weights;
  linear_backward(pass_.ctx, dy_TO, x_TW_, w.*projection.weight,
                  wide_TW_.present() ? wide_TW_.view() : dx_TI_, gradients_.*projection.weight,
                  gradients_.*projection.bias, begun_, w.*projection.tail);
  begun_ = true;
  const View& db_OR = gradients_.*projection.b;
  if (db_OR.present())
    ops::adapter_gradient(pass_.ctx.stream(),
                          {.dy_TO = dy_TO,
                           .xu_TW = x_TW_,
                           .first = stacked(pass_, input_).dim(1) + adapter_row(w, projection),
                           .db_OR = db_OR,
                           .scale = w.adapter_scale});
}

void InputGradient::finish() {
  if (!wide_TW_.present()) return;
  const Lease dropped_TI = dropped(pass_, input_, x_TW_);
  ops::adapter_backward(pass_.ctx.stream(), {.d_TW = wide_TW_,
                                             .xu_TW = x_TW_,
                                             .dropped_TI = dropped_TI,
                                             .a_PI = stacked(pass_, input_),
                                             .da_RI = stacked_gradient(gradients_, input_),
                                             .dx_TI = dx_TI_,
                                             .dropout = dropout_of(pass_, input_)});
  wide_TW_.release();
}

}  // namespace longstride
