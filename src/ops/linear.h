// Linear layers: y = x W^T + b.    R rows, I inputs, O outputs.
//
// Weights may be F32, BF16 or F16; x, y and gradients are F32 on the CPU. A weight that is not F32
// is widened into `scratch` first (F32, at least linear_scratch_elements; absent when the weight is
// F32).
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct LinearForward {
  ConstView x_RI;
  ConstView w_OI;
  ConstView b_O;  // absent: no bias
  View y_RO;      // =, or += where `accumulate` is set
  View scratch;
  bool accumulate = false;
};
LS_OP(linear_forward, LinearForward)

// Each output that is absent is not computed.
struct LinearBackward {
  ConstView dy_RO;
  ConstView x_RI;  // read for dw only
  ConstView w_OI;  // read for dx only
  View dx_RI;      // =, or += where `accumulate_dx` is set
  View dw_OI;      // +=, F32
  View db_O;       // +=, F32
  View scratch;
  bool accumulate_dx = false;
};
LS_OP(linear_backward, LinearBackward)

// Scratch a call needs for this weight, in F32 elements: 0 when it is F32 already.
std::int64_t linear_scratch_elements(const ConstView& w);

}  // namespace longstride::ops
