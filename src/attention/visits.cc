#include "attention/visits.h"

#include <algorithm>

namespace longstride {

void VisitLists::reserve(const SequenceLayout& layout) {
  const std::int64_t tokens = std::min(layout.tokens, layout.chunk_tokens), pages = layout.pages();
  const std::int64_t query_pages = (tokens + layout.page_tokens - 1) / layout.page_tokens;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  lists_.offsets.reserve(size(query_pages + 1));
  lists_.first_visible.reserve(size(tokens));
  lists_.kv_pages.reserve(size(query_pages * pages));
  lists_.back_queries.reserve(size(query_pages * pages));
  lists_.visited.reserve(size(pages));
  lists_.back_offsets.reserve(size(pages + 1));
}

void VisitLists::build(const SequenceLayout& layout, std::int64_t chunk, std::int64_t window) {
  const ChunkKeys keys = layout.keys(chunk, window);
  lists_.kind = keys.kind;
  lists_.dense = keys.dense;
  lists_.chunk_begin = keys.chunk_begin;
  lists_.first_visible.clear();
  for (std::int64_t t = 0; t < layout.chunk_size(chunk); ++t)
    lists_.first_visible.push_back(layout.first_visible(lists_.chunk_begin + t, window));
  lists_.list_pages(layout.page_tokens, layout.visited_pages(chunk, window).begin);
}

}  // namespace longstride
