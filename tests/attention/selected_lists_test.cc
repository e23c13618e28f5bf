// Lists of selected pages, and the visit lists made of them, against plain sets.
#include "attention/selected_lists.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "attention/visits.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/schedule/random_layout.h"

namespace longstride {
namespace {

using testing::random_layout;
using Lists = std::vector<std::set<std::int32_t>>;

// Up to `budget` pages before the chunk for each of its query pages.
Lists random_lists(Random& random, const SequenceLayout& layout, std::int64_t chunk,
                   std::int64_t budget) {
  const PageRun own = layout.chunk_pages(chunk);
  Lists lists(static_cast<std::size_t>(own.size()));
  for (auto& list : lists)
    for (std::int64_t i = 0; i < budget && own.begin > 0; ++i)
      list.insert(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(own.begin))));
  return lists;
}

std::vector<std::int32_t> in_rows(const Lists& lists, std::int64_t row) {
  std::vector<std::int32_t> flat;
  for (const auto& list : lists) {
    flat.insert(flat.end(), list.begin(), list.end());
    flat.resize(flat.size() + static_cast<std::size_t>(row) - list.size(), -1);
  }
  return flat;
}

TEST(SelectedLists, GiveBackWhatWasStored) {
  Random random(3);
  for (int i = 0; i < 50; ++i) {
    const SequenceLayout layout = random_layout(random);
    SparseLayers sparse;
    sparse.selection.union_pages = 60000;
    sparse.budgets = {5, SparseLayers::kNone, 2};
    SelectedLists selected;
    selected.reserve(layout, sparse);
    std::map<std::pair<std::int64_t, std::int64_t>, Lists> stored;
    SelectionCounts counts;
    for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk)
      for (const std::int64_t layer : {0, 2}) {
        const std::int64_t budget = sparse.budget(layer);
        const Lists lists = stored[{chunk, layer}] = random_lists(random, layout, chunk, budget);
        selected.store(chunk, layer, in_rows(lists, budget), budget);
        std::set<std::int32_t> distinct;
        for (const auto& list : lists) {
          distinct.insert(list.begin(), list.end());
          counts.visits += std::ssize(list);
        }
        counts.unions += distinct.empty() ? 0 : 1;
        counts.pages += std::ssize(distinct);
        counts.most = std::max<std::int64_t>(counts.most, std::ssize(distinct));
      }
    for (const auto& [where, lists] : stored) {
      const auto [chunk, layer] = where;
      for (std::size_t q = 0; q < lists.size(); ++q) {
        std::vector<std::int32_t> list;
        for (const std::uint16_t at : selected.list(chunk, layer, static_cast<std::int64_t>(q)))
          list.push_back(selected.pages(chunk, layer)[at]);
        EXPECT_EQ(list, std::vector<std::int32_t>(lists[q].begin(), lists[q].end()));
      }
      EXPECT_TRUE(selected.list(chunk, layer, std::ssize(lists)).empty());
    }
    const SelectionCounts found = selected.counts();
    EXPECT_EQ(found.unions, counts.unions);
    EXPECT_EQ(found.pages, counts.pages);
    EXPECT_EQ(found.most, counts.most);
    EXPECT_EQ(found.visits, counts.visits);
  }
}

TEST(SelectedLists, LongerListsThanReservedAreRefused) {
  const SequenceLayout layout{64, 16, 4, {0}};
  SparseLayers sparse;
  sparse.budgets = {2};
  SelectedLists selected;
  selected.reserve(layout, sparse);
  EXPECT_THROW(selected.store(2, 0, std::vector<std::int32_t>{1, 2, 3}, 3), InternalError);
}

TEST(SparseVisits, SelectedPagesThenTheOwnChunk) {
  Random random(4);
  for (int i = 0; i < 100; ++i) {
    const SequenceLayout layout = random_layout(random);
    SparseLayers sparse;
    sparse.selection.union_pages = 60000;
    sparse.budgets = {4};
    SelectedLists selected;
    selected.reserve(layout, sparse);
    VisitLists visits;
    visits.reserve(layout);
    for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      const PageRun own = layout.chunk_pages(chunk);
      Lists lists = random_lists(random, layout, chunk, 4);
      selected.store(chunk, 0, in_rows(lists, 4), 4);
      visits.build(layout, chunk, selected, 0);
      const VisitsView view = visits.view();
      EXPECT_EQ(view.kind, AttentionKind::kSparse);
      std::map<std::int32_t, std::vector<std::int32_t>> back;
      for (std::int64_t q = 0; q < own.size(); ++q) {
        auto& list = lists[static_cast<std::size_t>(q)];
        const std::int64_t first =
            layout.first_visible(layout.chunk_begin(chunk) + q * layout.page_tokens, 0);
        for (std::int64_t page = own.begin; page <= own.begin + q; ++page)
          if ((page + 1) * layout.page_tokens > first) list.insert(static_cast<std::int32_t>(page));
        EXPECT_EQ(std::vector(view.kv_pages + view.offsets[q], view.kv_pages + view.offsets[q + 1]),
                  std::vector<std::int32_t>(list.begin(), list.end()));
        for (const std::int32_t page : list) back[page].push_back(static_cast<std::int32_t>(q));
      }
      ASSERT_EQ(view.visited_pages, std::ssize(back));
      std::int64_t at = 0;
      for (const auto& [page, queries] : back) {
        EXPECT_EQ(view.visited[at], page);
        EXPECT_EQ(std::vector(view.back_queries + view.back_offsets[at],
                              view.back_queries + view.back_offsets[at + 1]),
                  queries);
        ++at;
      }
      for (std::int64_t t = 0; t < layout.chunk_size(chunk); ++t)
        EXPECT_EQ(view.first_visible[t], layout.first_visible(layout.chunk_begin(chunk) + t, 0));
    }
  }
}

}  // namespace
}  // namespace longstride
