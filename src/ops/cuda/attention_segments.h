// Dense attention of a chunk, segment by segment: cuDNN computes each one, and partial results are
// merged by their log-sum-exps.
#pragma once

#include "ops/paged_attention.h"

namespace longstride::ops::cuda {

inline constexpr std::int64_t kSegmentTokens = 32768;
// cuDNN's deterministic backward pass needs workspace in proportion to a segment: 8 GiB for 32768
// keys of a 7B model. Half of that costs 1% of its speed.
inline constexpr std::int64_t kExactBackwardSegmentTokens = 16384;
// cuDNN takes some 40 ms to prepare for each new length. Documents begin anywhere, so it computes
// the keys from a multiple of this on; our matrix kernels compute those before.
inline constexpr std::int64_t kEvenTokens = 1024;

// cuDNN's forward kernels skip masked tiles wherever the diagonal is; the backward kernels only if
// it begins in the corner, so there the chunk's own keys are a separate, square segment.
constexpr KeyCut segment_cut(bool backward, bool exact) {
  return {.tokens = backward && exact ? kExactBackwardSegmentTokens : kSegmentTokens,
          .own_apart = backward,
          .documents_apart = true,
          .even_tokens = kEvenTokens};
}

std::int64_t segmented_attention_scratch_elements(const PagedAttentionShape& shape);
// Makes cuDNN's plans for the largest segments, and with them the shared workspace.
void reserve_segmented_attention(Stream& stream, const PagedAttentionReserve& args);
// False, with nothing done, if cuDNN does not support the shapes, or if documents begin within the
// chunk and all keys are one segment.
bool segmented_attention_forward(Stream& stream, const PagedAttentionForward& args);
bool segmented_attention_backward(Stream& stream, const PagedAttentionBackward& args);

}  // namespace longstride::ops::cuda
