// RMS normalisation over the last dimension: y = x / sqrt(mean(x^2) + eps) * (offset + w).   R rows
// of N elements. The q/k norm of Qwen3 is the same operation on rows of one head ([T*H, C]).
// Gemma's weights are offsets from 1; they are added in F32, since 1 + w in 16 bits would lose
// digits of w.
// W elements of a row of the output: N, or more where adapters have columns (ops/adapter.h).
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct RmsNormForward {
  ConstView x_RN;
  ConstView w_N;  // F32, BF16 or F16
  View y_RW;      // = its first N columns, the others stay; may be x itself
  float eps = 1e-6f;
  float offset = 0.0f;
};
LS_OP(rms_norm_forward, RmsNormForward)

// The row's scale is recomputed from x. dw is summed in a fixed order whatever the number of
// threads; dx has the same bits if dw is absent.
struct RmsNormBackward {
  ConstView dy_RN;
  ConstView x_RN;
  ConstView w_N;
  View dx_RN;    // =, or += if `accumulate_dx` is set; may be dy itself when not accumulating
  View dw_N;     // +=, F32; absent: not computed
  View scratch;  // F32, rms_norm_backward_scratch_elements
  float eps = 1e-6f;
  bool accumulate_dx = false;
  float offset = 0.0f;
};
LS_OP(rms_norm_backward, RmsNormBackward)

struct RmsNormShape {
  std::int64_t rows = 0, n = 0;
};
LS_SIZE(rms_norm_backward_scratch_elements, RmsNormShape)

}  // namespace longstride::ops
