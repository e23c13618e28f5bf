// The end of the model over one chunk: final norm and loss head, forward and backward.
#pragma once

#include <cstdint>
#include <span>

#include "model/chunk.h"
#include "model/parameters.h"
#include "ops/loss_head.h"

namespace longstride {

struct HeadPass {
  const ChunkContext& ctx;
  const ModelParameters& weights;
  const ModelParameters& gradients;  // final_norm and head +=
  std::int64_t block_rows = 0;
  float scale = 1.0f;     // of the losses, in the gradients
  bool weighted = false;  // the workspace has room for weights, given or not
};

// Host side of a chunk: targets in; losses and correct predictions out, which are valid after the
// stream's next synchronize(). Empty in a recording pass.
struct HeadLosses {
  std::span<const std::int32_t> targets;
  float* losses = nullptr;
  std::int32_t* correct = nullptr;
  std::span<const float> weights = {}, earlier = {};  // of ops::LossHead; empty: none
  ops::RatioClip clip = {};
};

// Takes the last layer's output; losses alone.
void head_forward(const HeadPass& pass, const Lease& x_TD, const HeadLosses& host);
// Takes the last layer's output and returns its gradient.
Lease head_forward_backward(const HeadPass& pass, Lease x_TD, const HeadLosses& host);

// The logits of the last row alone, in F32, of the final norm in the type of activations. `host`
// holds all V of them when this returns; null in a recording pass.
void head_logits(const ChunkContext& ctx, const ModelParameters& weights, const Lease& x_TD,
                 float* host);

}  // namespace longstride
