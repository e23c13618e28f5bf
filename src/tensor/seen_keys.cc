#include "tensor/seen_keys.h"

#include <algorithm>

namespace longstride {

std::optional<SeenKeys> seen_keys(const VisitsView& v, std::int64_t tokens,
                                  std::int64_t page_tokens) {
  if (tokens == 0) return std::nullopt;
  const std::int64_t* const end = v.first_visible + tokens;
  SeenKeys seen{v.first_visible[0], tokens};
  if (end[-1] != seen.first)
    seen.queries = std::lower_bound(v.first_visible, end, v.chunk_begin) - v.first_visible;
  if (seen.queries == 0 || v.first_visible[seen.queries - 1] != seen.first) return std::nullopt;
  // Every page between the first key of its first query and its own is visited.
  for (std::int64_t q = 0; q < v.query_pages; ++q) {
    const std::int64_t own = v.chunk_begin / page_tokens + q,
                       first = v.first_visible[q * page_tokens] / page_tokens;
    if (v.offsets[q + 1] - v.offsets[q] != own - first + 1) return std::nullopt;
  }
  return seen;
}

void OwnVisits::build(const VisitsView& v, std::int64_t tokens, std::int64_t page_tokens) {
  lists_.chunk_begin = v.chunk_begin;
  lists_.first_visible.clear();
  for (std::int64_t t = 0; t < tokens; ++t)
    lists_.first_visible.push_back(std::max(v.first_visible[t], v.chunk_begin));
  lists_.list_pages(page_tokens, v.chunk_begin / page_tokens);
}

}  // namespace longstride
