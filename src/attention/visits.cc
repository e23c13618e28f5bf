#include "attention/visits.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

void VisitLists::reserve(const SequenceLayout& layout) {
  const std::int64_t tokens = std::min(layout.tokens, layout.chunk_tokens), pages = layout.pages();
  const std::int64_t query_pages = (tokens + layout.page_tokens - 1) / layout.page_tokens;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  offsets_.reserve(size(query_pages + 1));
  first_visible_.reserve(size(tokens));
  kv_pages_.reserve(size(query_pages * pages));
  back_queries_.reserve(size(query_pages * pages));
  visited_.reserve(size(pages));
  back_offsets_.reserve(size(pages + 1));
}

void VisitLists::build(const SequenceLayout& layout, std::int64_t chunk, std::int64_t window) {
  const std::int64_t P = layout.page_tokens, tokens = layout.chunk_size(chunk);
  const PageRun own = layout.chunk_pages(chunk), all = layout.visited_pages(chunk, window);
  chunk_begin_ = layout.chunk_begin(chunk);
  first_visible_.clear();
  for (std::int64_t t = chunk_begin_; t < chunk_begin_ + tokens; ++t)
    first_visible_.push_back(layout.first_visible(t, window));

  // A query page visits from the page its first query sees to its own.
  const auto first_page = [&](std::int64_t query_page) {
    return first_visible_[static_cast<std::size_t>(query_page * P)] / P;
  };
  offsets_.assign(1, 0);
  kv_pages_.clear();
  for (std::int64_t q = 0; q < own.size(); ++q) {
    for (std::int64_t page = first_page(q); page <= own.begin + q; ++page)
      kv_pages_.push_back(static_cast<std::int32_t>(page));
    offsets_.push_back(static_cast<std::int64_t>(kv_pages_.size()));
  }

  visited_.clear();
  back_queries_.clear();
  back_offsets_.assign(1, 0);
  for (std::int64_t page = all.begin; page < all.end; ++page) {
    for (std::int64_t q = std::max<std::int64_t>(0, page - own.begin);
         q < own.size() && first_page(q) <= page; ++q)
      back_queries_.push_back(static_cast<std::int32_t>(q));
    visited_.push_back(static_cast<std::int32_t>(page));
    back_offsets_.push_back(static_cast<std::int64_t>(back_queries_.size()));
  }
  LS_CHECK(back_queries_.size() == kv_pages_.size(), "{} visits, {} in the transpose",
           kv_pages_.size(), back_queries_.size());
}

VisitsView VisitLists::view() const {
  return {chunk_begin_,          static_cast<std::int64_t>(offsets_.size()) - 1,
          offsets_.data(),       kv_pages_.data(),
          first_visible_.data(), static_cast<std::int64_t>(visited_.size()),
          visited_.data(),       back_offsets_.data(),
          back_queries_.data()};
}

}  // namespace longstride
