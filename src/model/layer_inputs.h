// Inputs of projections, with the columns of low-rank adapters (ops/adapter.h), and what flows back
// into them. Without adapters, an input is what the projection reads, and nothing is copied.
//
//   T tokens   I inputs   P adapter columns   W = I + P
#pragma once

#include "model/layer.h"
#include "model/projections.h"
#include "ops/swiglu.h"

namespace longstride {

// W for an input of I columns.
std::int64_t input_width(const LayerPass& pass, Input input, std::int64_t columns);

// x / rms(x) * weight, with the adapters' columns: [T, W].
Lease normed_input(const LayerPass& pass, const char* name, Input input, ConstView x_TD,
                   ConstView weight);

// Of the gate.
inline ops::Activation activation_of(const ModelConfig& config) {
  return config.gelu ? ops::Activation::kTanhGelu : ops::Activation::kSilu;
}

// f(gate) * up, with the adapters' columns: [T, W].
Lease gated_input(const LayerPass& pass, ConstView gate_TF, ConstView up_TF);

// An input that is a tensor already. `view` is it, or a copy with the adapters' columns.
struct WideInput {
  Lease copy;
  ConstView view;
};
WideInput wide_input(const LayerPass& pass, Input input, ConstView x_TI);

// y = x W^T + b (+ add), for x of either function above.
void project(const LayerPass& pass, const Projection& projection, ConstView x_TW, View y_TO,
             ConstView add_TO = {});

// The gradient of an input, from those of all its projections: `add` for each of them, then
// `finish`. The gradients of weights, biases and adapters +=.
class InputGradient {
 public:
  // `dx_TI`: written by finish. x is the input of the forward pass, with adapter columns.
  InputGradient(const LayerPass& pass, const LayerParameters& gradients, Input input,
                ConstView x_TW, View dx_TI);
  void add(const Projection& projection, ConstView dy_TO);
  void finish();

 private:
  const LayerPass& pass_;
  const LayerParameters& gradients_;
  Input input_;
  ConstView x_TW_;
  View dx_TI_;
  Lease wide_TW_;  // with adapters
  bool begun_ = false;
};

}  // namespace longstride
