#include "tensor/selected_pages.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

SelectedCount count_selected(const VisitsView& v, std::int64_t page_tokens) {
  const std::int64_t own = v.chunk_begin / page_tokens;
  const auto before_own = [&](const std::int32_t* begin, const std::int32_t* end) {
    return static_cast<std::int64_t>(std::lower_bound(begin, end, own) - begin);
  };
  SelectedCount count;
  for (std::int64_t q = 0; q < v.query_pages; ++q) {
    const std::int64_t pages = before_own(v.kv_pages + v.offsets[q], v.kv_pages + v.offsets[q + 1]);
    count.least = q == 0 ? pages : std::min(count.least, pages);
    count.most = std::max(count.most, pages);
  }
  count.distinct = before_own(v.visited, v.visited + v.visited_pages);
  return count;
}

std::span<const std::int32_t> SelectedRanks::slots(const VisitsView& v, const PagesView& pages,
                                                   std::int64_t begin, std::int64_t end) {
  slots_.clear();
  for (std::int64_t q = 0; q < v.query_pages; ++q)
    for (std::int64_t rank = begin; rank < end; ++rank)
      slots_.push_back(pages.slots[v.kv_pages[v.offsets[q] + rank]]);
  return slots_;
}

std::span<const std::int32_t> SelectedRanks::slots_of_others(std::span<const std::int32_t> coded,
                                                             const PagesView& others) {
  slots_.clear();
  for (const SelectedPage& page : pages_)
    slots_.push_back(std::ranges::binary_search(coded, page.page) ? -1 : others.slots[page.page]);
  return slots_;
}

void SelectedRanks::build(const VisitsView& v, std::int64_t page_tokens, std::int64_t begin,
                          std::int64_t end) {
  const std::int64_t own = v.chunk_begin / page_tokens;
  pages_.clear();
  places_.clear();
  // Pages ascend here and in every list, so each visit is of its list's next page.
  next_.assign(static_cast<std::size_t>(v.query_pages), 0);
  for (std::int64_t i = 0; i < v.visited_pages && v.visited[i] < own; ++i) {
    SelectedPage page{.page = v.visited[i],
                      .number = static_cast<std::int32_t>(i),
                      .begin = static_cast<std::int32_t>(places_.size())};
    for (std::int64_t j = v.back_offsets[i]; j < v.back_offsets[i + 1]; ++j) {
      const std::int32_t q = v.back_queries[j];
      const std::int64_t rank = next_[static_cast<std::size_t>(q)]++;
      if (rank < begin)
        page.first = false;
      else if (rank >= end)
        page.last = false;
      else
        places_.push_back(static_cast<std::int32_t>(q * (end - begin) + rank - begin));
    }
    page.end = static_cast<std::int32_t>(places_.size());
    if (page.begin < page.end) pages_.push_back(page);
  }
  LS_CHECK(std::ssize(places_) == v.query_pages * (end - begin),
           "{} copies of {} query pages, ranks {} to {}", places_.size(), v.query_pages, begin,
           end);
}

}  // namespace longstride
