#include "attention/visits.h"

#include <algorithm>

#include "base/error.h"

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
  see_documents(layout, chunk, window);
  lists_.list_pages(layout.page_tokens, layout.visited_pages(chunk, window).begin);
}

void VisitLists::see_documents(const SequenceLayout& layout, std::int64_t chunk,
                               std::int64_t window) {
  lists_.chunk_begin = layout.chunk_begin(chunk);
  lists_.first_visible.clear();
  for (std::int64_t t = 0; t < layout.chunk_size(chunk); ++t)
    lists_.first_visible.push_back(layout.first_visible(lists_.chunk_begin + t, window));
}

void VisitLists::build(const SequenceLayout& layout, std::int64_t chunk,
                       const SelectedLists& selected, std::int64_t layer) {
  lists_.kind = AttentionKind::kSparse;
  lists_.dense = {};
  see_documents(layout, chunk, 0);
  const PageRun own = layout.chunk_pages(chunk);
  const std::span<const std::int32_t> earlier = selected.pages(chunk, layer);
  lists_.offsets.assign(1, 0);
  lists_.kv_pages.clear();
  lists_.back_offsets.assign(earlier.size() + 1, 0);
  // The own pages that a query page visits: from the one in which its first query's document began.
  const auto first_own = [&](std::int64_t q) {
    return std::max(own.begin,
                    lists_.first_visible[static_cast<std::size_t>(q * layout.page_tokens)] /
                        layout.page_tokens);
  };
  for (std::int64_t q = 0; q < own.size(); ++q) {
    for (const std::uint16_t i : selected.list(chunk, layer, q)) {
      lists_.kv_pages.push_back(earlier[i]);
      ++lists_.back_offsets[i + std::size_t{1}];
    }
    for (std::int64_t page = first_own(q); page <= own.begin + q; ++page)
      lists_.kv_pages.push_back(static_cast<std::int32_t>(page));
    lists_.offsets.push_back(std::ssize(lists_.kv_pages));
  }
  // The transpose: where each page's query pages begin, then the query pages in order.
  for (std::size_t i = 1; i < lists_.back_offsets.size(); ++i)
    lists_.back_offsets[i] += lists_.back_offsets[i - 1];
  lists_.back_queries.resize(static_cast<std::size_t>(lists_.back_offsets.back()));
  cursors_.assign(lists_.back_offsets.begin(), lists_.back_offsets.end() - 1);
  for (std::int64_t q = 0; q < own.size(); ++q)
    for (const std::uint16_t i : selected.list(chunk, layer, q))
      lists_.back_queries[static_cast<std::size_t>(cursors_[i]++)] = static_cast<std::int32_t>(q);
  lists_.visited.assign(earlier.begin(), earlier.end());
  for (std::int64_t page = own.begin; page < own.end; ++page) {
    for (std::int64_t q = page - own.begin; q < own.size() && first_own(q) <= page; ++q)
      lists_.back_queries.push_back(static_cast<std::int32_t>(q));
    lists_.visited.push_back(static_cast<std::int32_t>(page));
    lists_.back_offsets.push_back(std::ssize(lists_.back_queries));
  }
  LS_CHECK(lists_.back_queries.size() == lists_.kv_pages.size(), "{} visits, {} in the transpose",
           lists_.kv_pages.size(), lists_.back_queries.size());
}

}  // namespace longstride
