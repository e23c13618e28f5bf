// The optimizer's operations: gradient norm and AdamW, with moments in F32 or in 8 bits.
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

// Adds the sum of squares of g to `sum`, in double, in a fixed order whatever the number of
// threads.
struct SumOfSquares {
  ConstView g;  // F32
  View sum_1;   // +=, F64
};
LS_OP(sum_of_squares, SumOfSquares)

// Decoupled weight decay (AdamW). g is multiplied by grad_scale first (clipping).
//   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p = p (1 - lr wd) - lr (m / c1) / (sqrt(v / c2) +
//   eps)
struct AdamW {
  ConstView g;  // F32
  View master;  // p, F32, updated in place; absent: the weight is p
  View m, v;    // updated in place: F32, or U8 if there are magnitudes
  // With a master: = the master rounded to the model's dtype; absent if the weight is the master.
  // Without: p, BF16 or F16, updated in F32 and rounded stochastically
  // (tensor/stochastic_weight.h).
  View weight;
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, grad_scale = 1;
  std::int64_t step = 1;  // 1 for the first update

  // Moments in 8 bits as bitsandbytes has them: a code (tensor/dynamic_code.h, signed for m,
  // unsigned for v) times the largest magnitude of its block of 256 elements. All zeros are zero. p
  // is computed from the new moments before they are coded. Codes and magnitudes are the same bits
  // on every device.
  View m_absmax, v_absmax;  // F32, one per block, updated in place

  // Without a master: the key, and the number of the first element in its parameter, even; with
  // moments in 8 bits, the beginning of a block.
  std::uint64_t rounding_key = 0;
  std::int64_t first_element = 0;
};
LS_OP(adamw, AdamW)

}  // namespace longstride::ops
