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
  chunk_begin_ = v.chunk_begin;
  first_visible_.clear();
  for (std::int64_t t = 0; t < tokens; ++t)
    first_visible_.push_back(std::max(v.first_visible[t], v.chunk_begin));

  const std::int64_t own = v.chunk_begin / page_tokens;
  const auto first_page = [&](std::int64_t q) {
    return first_visible_[static_cast<std::size_t>(q * page_tokens)] / page_tokens;
  };
  offsets_.assign(1, 0);
  back_offsets_.assign(1, 0);
  kv_pages_.clear();
  visited_.clear();
  back_queries_.clear();
  for (std::int64_t q = 0; q < v.query_pages; ++q) {
    for (std::int64_t page = first_page(q); page <= own + q; ++page)
      kv_pages_.push_back(static_cast<std::int32_t>(page));
    offsets_.push_back(std::ssize(kv_pages_));
    // The page of these queries, and those that visit it.
    visited_.push_back(static_cast<std::int32_t>(own + q));
    for (std::int64_t visitor = q; visitor < v.query_pages && first_page(visitor) <= own + q;
         ++visitor)
      back_queries_.push_back(static_cast<std::int32_t>(visitor));
    back_offsets_.push_back(std::ssize(back_queries_));
  }
}

VisitsView OwnVisits::view() const {
  return {chunk_begin_,     std::ssize(offsets_) - 1, offsets_.data(),
          kv_pages_.data(), first_visible_.data(),    std::ssize(visited_),
          visited_.data(),  back_offsets_.data(),     back_queries_.data()};
}

}  // namespace longstride
