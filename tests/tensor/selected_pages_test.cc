#include "tensor/selected_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tensor/visit_buffers.h"

namespace longstride {
namespace {

constexpr std::int64_t kPageTokens = 16;

// Two query pages, 6 and 7, that visit three earlier pages each.
VisitBuffers two_lists() {
  VisitBuffers lists;
  lists.chunk_begin = 6 * kPageTokens;
  lists.first_visible.assign(2 * kPageTokens, 0);
  lists.offsets = {0, 4, 9};
  lists.kv_pages = {0, 2, 5, 6, 1, 2, 5, 6, 7};
  lists.visited = {0, 1, 2, 5, 6, 7};
  lists.back_offsets = {0, 1, 2, 4, 6, 8, 9};
  lists.back_queries = {0, 1, 0, 1, 0, 1, 0, 1, 1};
  return lists;
}

std::vector<std::int32_t> copied(std::span<const std::int32_t> x) { return {x.begin(), x.end()}; }

TEST(SelectedPages, AreCountedWithoutTheChunk) {
  VisitBuffers lists = two_lists();
  SelectedCount count = count_selected(lists.view(), kPageTokens);
  EXPECT_EQ(count.least, 3);
  EXPECT_EQ(count.most, 3);
  EXPECT_EQ(count.distinct, 4);
  lists.chunk_begin = 5 * kPageTokens;  // now page 5 is the chunk's
  count = count_selected(lists.view(), kPageTokens);
  EXPECT_EQ(count.most, 2);
  EXPECT_EQ(count.distinct, 3);
}

TEST(SelectedPages, HaveTheirSlotsInTheOrderOfTheCopies) {
  const VisitBuffers lists = two_lists();
  const std::vector<std::int32_t> slots = {10, 11, 12, 13, 14, 15, 16, 17};
  PagesView pages;
  pages.slots = slots.data();
  SelectedRanks ranks;
  EXPECT_EQ(copied(ranks.slots(lists.view(), pages, 0, 3)),
            (std::vector<std::int32_t>{10, 12, 15, 11, 12, 15}));
  EXPECT_EQ(copied(ranks.slots(lists.view(), pages, 1, 2)), (std::vector<std::int32_t>{12, 12}));
}

TEST(SelectedPages, KnowTheirCopies) {
  const VisitBuffers lists = two_lists();
  SelectedRanks ranks;
  ranks.build(lists.view(), kPageTokens, 0, 3);
  EXPECT_EQ(copied(ranks.places()), (std::vector<std::int32_t>{0, 3, 1, 4, 2, 5}));
  const std::vector<SelectedPage> all = {{0, 0, 0, 1}, {1, 1, 1, 2}, {2, 2, 2, 4}, {5, 3, 4, 6}};
  EXPECT_EQ((std::vector<SelectedPage>{ranks.pages().begin(), ranks.pages().end()}), all);
}

// Page 2 has rank 1 in the first list and rank 0 in the second.
TEST(SelectedPages, KnowWhetherOtherRanksHoldThemToo) {
  VisitBuffers lists = two_lists();
  lists.kv_pages = {0, 2, 5, 6, 2, 3, 5, 6, 7};
  lists.visited = {0, 2, 3, 5, 6, 7};
  lists.back_offsets = {0, 1, 3, 4, 6, 8, 9};
  lists.back_queries = {0, 0, 1, 1, 0, 1, 0, 1, 1};
  SelectedRanks ranks;
  ranks.build(lists.view(), kPageTokens, 0, 1);
  EXPECT_EQ(copied(ranks.places()), (std::vector<std::int32_t>{0, 1}));
  const std::vector<SelectedPage> early = {{0, 0, 0, 1}, {2, 1, 1, 2, true, false}};
  EXPECT_EQ((std::vector<SelectedPage>{ranks.pages().begin(), ranks.pages().end()}), early);
  ranks.build(lists.view(), kPageTokens, 1, 3);
  EXPECT_EQ(copied(ranks.places()), (std::vector<std::int32_t>{0, 2, 1, 3}));
  const std::vector<SelectedPage> late = {{2, 1, 0, 1, false, true}, {3, 2, 1, 2}, {5, 3, 2, 4}};
  EXPECT_EQ((std::vector<SelectedPage>{ranks.pages().begin(), ranks.pages().end()}), late);
}

TEST(SelectedPages, KnowTheSlotsOfThoseThatAreNotCoded) {
  const VisitBuffers lists = two_lists();
  SelectedRanks ranks;
  ranks.build(lists.view(), kPageTokens, 0, 3);
  const std::vector<std::int32_t> slots = {9, 8, 7, 6, 5, 4};
  PagesView others;
  others.slots = slots.data();
  const auto found = [&](const std::vector<std::int32_t>& coded) {
    return copied(ranks.slots_of_others(coded, others));
  };
  EXPECT_EQ(found({}), (std::vector<std::int32_t>{9, 8, 7, 4}));  // of pages 0, 1, 2 and 5
  EXPECT_EQ(found({1, 4, 5}), (std::vector<std::int32_t>{9, -1, 7, -1}));
}

// Any lists in ranges of any length: every copy is found under its own page, once, in the order of
// query pages, and every page has one first and one last range.
TEST(SelectedPages, FindEveryCopy) {
  constexpr std::int32_t kBefore = 40, kQueryPages = 5, kSelected = 17;
  Random random(3, 0);
  VisitBuffers lists;
  lists.chunk_begin = kBefore * kPageTokens;
  std::vector<std::vector<std::int32_t>> visitors(kBefore + kQueryPages);
  lists.offsets = {0};
  for (std::int32_t q = 0; q < kQueryPages; ++q) {
    std::vector<std::int32_t> pages(kBefore);
    std::iota(pages.begin(), pages.end(), 0);
    for (std::size_t i = 0; i < kSelected; ++i)
      std::swap(pages[i], pages[i + static_cast<std::size_t>(random.below(pages.size() - i))]);
    pages.resize(kSelected);
    std::sort(pages.begin(), pages.end());
    for (std::int32_t own = 0; own <= q; ++own) pages.push_back(kBefore + own);
    for (const std::int32_t page : pages) visitors[static_cast<std::size_t>(page)].push_back(q);
    lists.kv_pages.insert(lists.kv_pages.end(), pages.begin(), pages.end());
    lists.offsets.push_back(std::ssize(lists.kv_pages));
  }
  lists.back_offsets = {0};
  for (std::size_t page = 0; page < visitors.size(); ++page) {
    if (visitors[page].empty()) continue;
    lists.visited.push_back(static_cast<std::int32_t>(page));
    lists.back_queries.insert(lists.back_queries.end(), visitors[page].begin(),
                              visitors[page].end());
    lists.back_offsets.push_back(std::ssize(lists.back_queries));
  }
  std::vector<std::int32_t> same(visitors.size());  // slots are the pages' numbers
  std::iota(same.begin(), same.end(), 0);
  PagesView pages;
  pages.slots = same.data();

  for (const std::int64_t length : {1, 4, 16, 17}) {
    SelectedRanks ranks;
    std::vector<int> firsts(kBefore), lasts(kBefore), copies(kBefore);
    for (std::int64_t begin = 0; begin < kSelected; begin += length) {
      const std::int64_t end = std::min<std::int64_t>(begin + length, kSelected);
      const std::vector<std::int32_t> from = copied(ranks.slots(lists.view(), pages, begin, end));
      ranks.build(lists.view(), kPageTokens, begin, end);
      for (const SelectedPage& page : ranks.pages()) {
        const auto i = static_cast<std::size_t>(page.page);
        EXPECT_EQ(lists.visited[static_cast<std::size_t>(page.number)], page.page);
        EXPECT_EQ(page.first, copies[i] == 0);
        firsts[i] += page.first ? 1 : 0;
        lasts[i] += page.last ? 1 : 0;
        for (std::int32_t at = page.begin; at < page.end; ++at, ++copies[i]) {
          const std::int32_t place = ranks.places()[static_cast<std::size_t>(at)];
          EXPECT_EQ(from[static_cast<std::size_t>(place)], page.page);
          if (at > page.begin) {
            EXPECT_LT(ranks.places()[static_cast<std::size_t>(at - 1)], place);
          }
        }
        EXPECT_EQ(page.last, copies[i] == static_cast<int>(visitors[i].size()));
      }
    }
    for (std::size_t page = 0; page < kBefore; ++page) {
      EXPECT_EQ(copies[page], static_cast<int>(visitors[page].size()));
      EXPECT_EQ(firsts[page], visitors[page].empty() ? 0 : 1);
      EXPECT_EQ(lasts[page], visitors[page].empty() ? 0 : 1);
    }
  }
}

}  // namespace
}  // namespace longstride
