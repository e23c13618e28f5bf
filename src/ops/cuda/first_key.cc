#include "ops/cuda/attention_segments.h"

namespace longstride::ops::cuda {

std::optional<std::int64_t> first_key_of_all(const VisitsView& v, std::int64_t tokens,
                                             std::int64_t page_tokens) {
  if (tokens == 0) return std::nullopt;
  const std::int64_t first = v.first_visible[0];
  if (v.first_visible[tokens - 1] != first) return std::nullopt;
  // Every page between the first key and the query's own is visited.
  for (std::int64_t q = 0; q < v.query_pages; ++q) {
    const std::int64_t own = v.chunk_begin / page_tokens + q;
    if (v.offsets[q + 1] - v.offsets[q] != own - first / page_tokens + 1) return std::nullopt;
  }
  return first;
}

}  // namespace longstride::ops::cuda
