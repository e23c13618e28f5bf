// SwiGLU: y = silu(gate) * up, elementwise.
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct SwigluForward {
  ConstView gate_TF, up_TF;
  View y_TF;  // =; may be gate or up
};
LS_OP(swiglu_forward, SwigluForward)

struct SwigluBackward {
  ConstView dy_TF;
  ConstView gate_TF, up_TF;
  View dgate_TF, dup_TF;  // =; may be gate and up themselves, or dy
};
LS_OP(swiglu_backward, SwigluBackward)

}  // namespace longstride::ops
