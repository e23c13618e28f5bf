// Attention of a chunk over one contiguous range of keys, in segments: cuDNN computes each, partial
// results are merged by their log-sum-exps. Segments end at fixed multiples of kSegmentTokens, so
// that nothing but the record decides the order of arithmetic; the last one includes the chunk's
// own keys.
#pragma once

#include <optional>

#include "ops/paged_attention.h"

namespace longstride::ops::cuda {

inline constexpr std::int64_t kSegmentTokens = 32768;

// What the queries of a chunk see, where it is one range of keys: all of [first_key, own position],
// or the last `window` of them.
struct KeyRange {
  std::int64_t first_key = 0;
  std::int64_t window = 0;  // 0: none
};
// Nothing where the visit lists say anything else (sparse, documents that begin in the chunk).
std::optional<KeyRange> key_range_of(const VisitsView& visits, std::int64_t tokens,
                                     std::int64_t page_tokens);

std::int64_t segmented_attention_scratch_elements(const PagedAttentionShape& shape);
// False, with nothing done, where cuDNN does not take the shapes.
bool segmented_attention_forward(Stream& stream, const PagedAttentionForward& args,
                                 const KeyRange& range);
bool segmented_attention_backward(Stream& stream, const PagedAttentionBackward& args,
                                  const KeyRange& range);

}  // namespace longstride::ops::cuda
