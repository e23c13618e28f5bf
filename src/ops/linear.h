// Linear layers: y = x W^T + b.    R rows, I inputs, O outputs.
//
// x, y, dx and dy have one type: F32, or BF16 on devices that compute in it; sums are F32. Weights
// and biases may be F32, BF16 or F16: a weight whose type differs from x's is first converted into
// `scratch` (F32 elements, at least linear_scratch_elements; may be absent when that is 0).
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct LinearForward {
  ConstView x_RI;
  ConstView w_OI;
  ConstView b_O;     // absent: no bias
  ConstView add_RO;  // added to the product; may be absent; must not be y (libraries round an
                     // addition in place differently)
  View y_RO;         // =
  View scratch;
};
LS_OP(linear_forward, LinearForward)

// Absent outputs are not computed.
struct LinearBackward {
  ConstView dy_RO;
  ConstView x_RI;  // read for dw only
  ConstView w_OI;  // read for dx only
  View dx_RI;      // =, or += if `accumulate_dx` is set
  View dw_OI;      // +=, F32
  View db_O;       // +=, F32
  View scratch;
  bool accumulate_dx = false;
};
LS_OP(linear_backward, LinearBackward)

// The scratch of a forward or backward call, in F32 elements.
struct LinearShape {
  std::int64_t rows = 0;
  ConstView w_OI;
  DType compute = DType::kF32;  // of x
};
LS_SIZE(linear_scratch_elements, LinearShape)

}  // namespace longstride::ops
