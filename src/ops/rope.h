// Rotary position embedding, the "rotate half" form of Hugging Face: rotates pair (i, i + C/2) by
// the angle position * f_i.
#pragma once

#include "ops/dispatch.h"
#include "tensor/pages_view.h"
#include "tensor/view.h"

namespace longstride::ops {

// cos and sin of every (token, pair), computed in double from 64-bit positions and rounded once,
// times `attention_factor` (yarn; 1 otherwise).
struct RopeTables {
  ConstView positions_T;    // I64
  ConstView frequencies_N;  // F64 [C/2]: single precision would be radians off at 1M tokens
  View cos_TN;              // F32 [T, C/2]
  View sin_TN;
  double attention_factor = 1.0;
};
LS_OP(rope_tables, RopeTables)

// In place: x = rotate(x), or rotate back (the gradient) if `inverse` is set.
struct Rope {
  View x_THC;
  ConstView cos_TN, sin_TN;
  bool inverse = false;
};
LS_OP(rope, Rope)

// Rotates k and stores k and v into the pages that hold tokens [begin, begin + T).
struct AppendKv {
  ConstView k_TKC, v_TKC;
  ConstView cos_TN, sin_TN;
  PagesView pages;
  std::int64_t begin = 0;
};
LS_OP(append_kv, AppendKv)

// Reads the complete gradient of tokens [begin, begin + T) out of their gradient pages, rotating dk
// back.
struct TakeKvGradient {
  PagesView pages;
  std::int64_t begin = 0;
  ConstView cos_TN, sin_TN;
  View dk_TKC, dv_TKC;  // =
};
LS_OP(take_kv_gradient, TakeKvGradient)

}  // namespace longstride::ops
