#include <algorithm>

#include "ops/cuda/attention_segments.h"

namespace longstride::ops::cuda {

std::optional<KeyRange> key_range_of(const VisitsView& v, std::int64_t tokens,
                                     std::int64_t page_tokens) {
  if (tokens == 0) return std::nullopt;
  const std::int64_t first = v.first_visible[0], last = v.first_visible[tokens - 1];
  // Every page between the first key and the query's own is visited.
  for (std::int64_t q = 0; q < v.query_pages; ++q) {
    const std::int64_t from = v.first_visible[q * page_tokens] / page_tokens,
                       to = v.chunk_begin / page_tokens + q;
    if (v.offsets[q + 1] - v.offsets[q] != to - from + 1) return std::nullopt;
  }
  if (first == last) return KeyRange{first, 0};
  // The last query is the first to feel the window; all others must agree with it.
  const std::int64_t window = v.chunk_begin + tokens - last;
  for (std::int64_t t = 0; t < tokens; ++t)
    if (v.first_visible[t] != std::max(first, v.chunk_begin + t - window + 1)) return std::nullopt;
  return KeyRange{first, window};
}

}  // namespace longstride::ops::cuda
