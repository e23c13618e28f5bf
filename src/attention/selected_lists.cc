#include "attention/selected_lists.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

void SelectedLists::reserve(const SequenceLayout& layout, const SparseLayers& sparse) {
  layers_ = std::ssize(sparse.budgets);
  slots_.assign(static_cast<std::size_t>(layout.chunks() * layers_), {});
  const std::int64_t query_pages = layout.chunk_tokens / layout.page_tokens;
  std::int64_t pages = 0, ranks = 0, lengths = 0, most = 0;
  for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk)
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      Slot& s = slot(chunk, layer);
      s = {.pages = pages, .ranks = ranks, .lengths = lengths};
      if (!sparse.is_sparse(layer)) continue;
      const std::int64_t earlier = layout.chunk_pages(chunk).begin;
      s.row = std::min(sparse.budget(layer), earlier);
      pages += std::min(sparse.selection.union_pages, earlier);
      ranks += query_pages * s.row;
      lengths += query_pages;
      most = std::max(most, query_pages * s.row);
    }
  pages_ = std::make_unique_for_overwrite<std::int32_t[]>(static_cast<std::size_t>(pages));
  page_count_ = pages;
  ranks_ = std::make_unique_for_overwrite<std::uint16_t[]>(static_cast<std::size_t>(ranks));
  rank_count_ = ranks;
  lengths_.resize(static_cast<std::size_t>(lengths));
  distinct_.reserve(static_cast<std::size_t>(most));
}

void SelectedLists::store(std::int64_t chunk, std::int64_t layer,
                          std::span<const std::int32_t> lists, std::int64_t row) {
  Slot& s = slot(chunk, layer);
  s.list_count = row == 0 ? 0 : std::ssize(lists) / row;
  const auto list_of = [&](std::int64_t q) {
    const auto all =
        lists.subspan(static_cast<std::size_t>(q * row), static_cast<std::size_t>(row));
    const auto end = std::find_if(all.begin(), all.end(), [](std::int32_t p) { return p < 0; });
    return all.first(static_cast<std::size_t>(end - all.begin()));
  };
  distinct_.clear();
  for (std::int64_t q = 0; q < s.list_count; ++q)
    distinct_.insert(distinct_.end(), list_of(q).begin(), list_of(q).end());
  std::sort(distinct_.begin(), distinct_.end());
  distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
  s.page_count = std::ssize(distinct_);
  LS_CHECK(s.page_count <= kMostUnionPages && s.pages + s.page_count <= page_count_,
           "chunk {} layer {} selects {} pages", chunk, layer, s.page_count);
  std::copy(distinct_.begin(), distinct_.end(), pages_.get() + s.pages);
  for (std::int64_t q = 0; q < s.list_count; ++q) {
    const std::span<const std::int32_t> list = list_of(q);
    LS_CHECK(std::ssize(list) <= s.row, "query page {} of chunk {} selects {} pages of {}", q,
             chunk, list.size(), s.row);
    lengths_[static_cast<std::size_t>(s.lengths + q)] = static_cast<std::uint16_t>(list.size());
    std::int64_t rank = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      while (distinct_[static_cast<std::size_t>(rank)] != list[i]) ++rank;
      ranks_[static_cast<std::size_t>(s.ranks + q * s.row) + i] = static_cast<std::uint16_t>(rank);
    }
  }
}

std::span<const std::int32_t> SelectedLists::pages(std::int64_t chunk, std::int64_t layer) const {
  const Slot& s = slot(chunk, layer);
  return {pages_.get() + s.pages, static_cast<std::size_t>(s.page_count)};
}

std::span<const std::uint16_t> SelectedLists::list(std::int64_t chunk, std::int64_t layer,
                                                   std::int64_t query_page) const {
  const Slot& s = slot(chunk, layer);
  if (query_page >= s.list_count) return {};
  return {ranks_.get() + s.ranks + query_page * s.row,
          std::size_t{lengths_[static_cast<std::size_t>(s.lengths + query_page)]}};
}

SelectionCounts SelectedLists::counts() const {
  SelectionCounts counts;
  for (const Slot& s : slots_) {
    if (s.page_count == 0) continue;
    ++counts.unions;
    counts.pages += s.page_count;
    counts.most = std::max(counts.most, s.page_count);
    for (std::int64_t q = 0; q < s.list_count; ++q)
      counts.visits += lengths_[static_cast<std::size_t>(s.lengths + q)];
  }
  return counts;
}

std::int64_t SelectedLists::bytes() const {
  return static_cast<std::int64_t>(slots_.size() * sizeof(Slot) +
                                   distinct_.capacity() * sizeof(std::int32_t) +
                                   lengths_.size() * sizeof(std::uint16_t)) +
         page_count_ * static_cast<std::int64_t>(sizeof(std::int32_t)) +
         rank_count_ * static_cast<std::int64_t>(sizeof(std::uint16_t));
}

}  // namespace longstride
