#include "tensor/segment_visits.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

void SegmentVisits::build_own(const VisitsView& v, std::int64_t tokens, std::int64_t page_tokens) {
  lists_.kind = AttentionKind::kWindow;
  lists_.chunk_begin = v.chunk_begin;
  lists_.first_visible.clear();
  for (std::int64_t t = 0; t < tokens; ++t)
    lists_.first_visible.push_back(std::max(v.first_visible[t], v.chunk_begin));
  lists_.list_pages(page_tokens, v.chunk_begin / page_tokens);
}

void SegmentVisits::build_before(const VisitsView& v, std::int64_t tokens, std::int64_t page_tokens,
                                 std::int64_t end) {
  const DenseKeys& seen = v.dense;
  lists_.kind = AttentionKind::kWindow;
  LS_CHECK(end % page_tokens == 0 && end <= v.chunk_begin && seen.first < end,
           "keys {} to {} of a chunk at {}, pages of {}", seen.first, end, v.chunk_begin,
           page_tokens);
  const auto query_pages = [&](std::int64_t queries) {
    return (queries + page_tokens - 1) / page_tokens;
  };
  const std::int64_t first_page = seen.first / page_tokens, end_page = end / page_tokens,
                     seeing = query_pages(seen.queries);
  lists_.chunk_begin = v.chunk_begin;
  lists_.first_visible.clear();
  for (std::int64_t t = 0; t < tokens; ++t)
    lists_.first_visible.push_back(t < seen.queries ? seen.first : v.chunk_begin);
  lists_.offsets.assign(1, 0);
  lists_.kv_pages.clear();
  for (std::int64_t q = 0; q < query_pages(tokens); ++q) {
    for (std::int64_t page = first_page; q < seeing && page < end_page; ++page)
      lists_.kv_pages.push_back(static_cast<std::int32_t>(page));
    lists_.offsets.push_back(std::ssize(lists_.kv_pages));
  }
  lists_.visited.clear();
  lists_.back_queries.clear();
  lists_.back_offsets.assign(1, 0);
  for (std::int64_t page = first_page; page < end_page; ++page) {
    for (std::int64_t q = 0; q < seeing; ++q)
      lists_.back_queries.push_back(static_cast<std::int32_t>(q));
    lists_.visited.push_back(static_cast<std::int32_t>(page));
    lists_.back_offsets.push_back(std::ssize(lists_.back_queries));
  }
}

}  // namespace longstride
