// The optimizer's operations: gradient norm and AdamW.
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
  View master;  // F32, updated in place
  View m, v;    // F32, updated in place
  View weight;  // = master rounded to the model's dtype; absent if the weight is the master
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, grad_scale = 1;
  std::int64_t step = 1;  // 1 for the first update
};
LS_OP(adamw, AdamW)

}  // namespace longstride::ops
