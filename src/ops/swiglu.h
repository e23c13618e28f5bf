// Gated linear units: y = f(gate) * up, elementwise. f is silu (SwiGLU) or gelu in its tanh form
// (GeGLU): gelu(x) = x / 2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3).
//
//   T tokens   F elements of a row   W of a row of the output: F, or more where it has columns of
//   adapters beside them (ops/adapter.h)
#pragma once

#include <cstdint>

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

enum class Activation : std::uint8_t { kSilu, kTanhGelu };

// 2u = kGelu * x + kGeluCubic * x^3.
inline constexpr float kGelu = 1.5957691216057308f, kGeluCubic = 0.07135481627159911f;

struct SwigluForward {
  ConstView gate_TF, up_TF;
  View y_TW;  // = its first F columns, the others stay; may be gate or up
  Activation activation = Activation::kSilu;
};
LS_OP(swiglu_forward, SwigluForward)

struct SwigluBackward {
  ConstView dy_TF;
  ConstView gate_TF, up_TF;
  View dgate_TF, dup_TF;  // =; may be gate and up themselves, or dy
  Activation activation = Activation::kSilu;
  View y_TF = {};  // = the bits of swiglu_forward; may be dy; absent: not computed
};
LS_OP(swiglu_backward, SwigluBackward)

}  // namespace longstride::ops
