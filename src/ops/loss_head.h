// The loss head: logits = x W^T, cross-entropy against targets, and its gradients in the same pass.
// Logits exist only for `block_rows` rows at a time, never for a whole chunk.
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct LossHead {
  ConstView x_TD;       // after the final norm
  ConstView w_VD;       // F32, BF16 or F16
  ConstView targets_T;  // I32; a negative target is ignored
  View losses_T;        // =, F32: -log p(target), 0 if the target is ignored
  View correct_T;  // =, I32: 1 if the largest logit (first of equals) is the target; absent: not
                   // computed
  View dx_TD;      // =: d(scale * sum of losses)/dx; absent: no gradients at all
  View dw_VD;      // +=, F32; absent: not computed
  float scale = 1.0f;  // 1 / number of targets of the step
  std::int64_t block_rows = 0;
  View scratch;  // F32, loss_head_scratch_elements
};
LS_OP(loss_head, LossHead)

struct LossHeadShape {
  std::int64_t block_rows = 0;
  ConstView w_VD;
  DType compute = DType::kF32;  // of x
};
LS_SIZE(loss_head_scratch_elements, LossHeadShape)

// Rows per block, for a vocabulary, that keep the logits of a block small and the products fast.
LS_SIZE(loss_head_block_rows, std::int64_t)

}  // namespace longstride::ops
