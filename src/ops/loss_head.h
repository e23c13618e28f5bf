// The loss head: logits = x W^T, cross-entropy against targets, and its gradients in the same pass.
// Logits exist only for `block_rows` rows at a time, never for a whole chunk.
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

// Bounds of the ratio of a target's probability to an earlier one: [1 - below, 1 + above].
struct RatioClip {
  float below = 0, above = 0;
};
// The weight of a target in the gradient of -min(r w, clip(r) w), where r = `ratio`: r w, or 0
// where the bound holds.
constexpr float clipped_weight(float weight, float ratio, RatioClip clip) {
  const bool held = weight >= 0 ? ratio > 1.0f + clip.above : ratio < 1.0f - clip.below;
  return held ? 0.0f : ratio * weight;
}

struct LossHead {
  ConstView x_TD;       // after the final norm
  ConstView w_VD;       // F32, BF16 or F16
  ConstView targets_T;  // I32; a negative target is ignored
  View losses_T;        // =, F32: -log p(target), 0 if the target is ignored
  View correct_T;  // =, I32: 1 if the largest logit (first of equals) is the target; absent: not
                   // computed
  View dx_TD;      // =: d(scale * sum of weighted losses)/dx; absent: no gradients at all
  View dw_VD;      // +=, F32; absent: not computed
  float scale = 1.0f;  // 1 / number of targets of the step
  std::int64_t block_rows = 0;
  View scratch;         // F32, loss_head_scratch_elements
  ConstView weights_T;  // F32, of any sign: of each target's loss in dx and dw; absent: 1
  ConstView earlier_T;  // F32, log p of each target before: dx and dw are those of clipped ratios
                        // times weights (clipped_weight); absent: of the losses
  RatioClip clip;
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
