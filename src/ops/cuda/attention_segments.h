// Dense attention of a chunk, segment by segment: cuDNN computes each, partial results are merged
// by their log-sum-exps.
#pragma once

#include "ops/paged_attention.h"

namespace longstride::ops::cuda {

inline constexpr std::int64_t kSegmentTokens = 32768;
// cuDNN's deterministic backward pass needs workspace in proportion to a segment: 8 GiB for 32768
// keys of a 7B model. Half of that costs 1% of its speed.
inline constexpr std::int64_t kExactBackwardSegmentTokens = 16384;
// cuDNN takes some 40 ms to prepare for a length it has not met. Documents begin anywhere, so it
// gets the keys from a multiple of this on; our matrix kernels get those before.
inline constexpr std::int64_t kEvenTokens = 1024;

// cuDNN's forward kernels skip what a mask hides wherever the diagonal lies; the backward ones only
// where it begins in the corner, so there the chunk's own keys are a square of their own.
constexpr KeyCut segment_cut(bool backward, bool exact) {
  return {.tokens = backward && exact ? kExactBackwardSegmentTokens : kSegmentTokens,
          .own_apart = backward,
          .documents_apart = true,
          .even_tokens = kEvenTokens};
}

std::int64_t segmented_attention_scratch_elements(const PagedAttentionShape& shape);
// Makes cuDNN's plans for the largest segments, and with them the workspace that all share.
void reserve_segmented_attention(Stream& stream, const PagedAttentionReserve& args);
// False, with nothing done, where cuDNN does not take the shapes, or documents begin within the
// chunk and all keys are one segment.
bool segmented_attention_forward(Stream& stream, const PagedAttentionForward& args);
bool segmented_attention_backward(Stream& stream, const PagedAttentionBackward& args);

}  // namespace longstride::ops::cuda
