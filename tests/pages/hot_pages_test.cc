#include "pages/hot_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace longstride {
namespace {

PageSet pages_of(const std::vector<std::int64_t>& list) {
  std::vector<PageRun> runs;
  for (const std::int64_t page : list) runs.push_back({page, page + 1});
  return PageSet(runs);
}

std::vector<std::int32_t> of(HotPages& hot, std::int64_t layer) {
  const auto pages = hot.of(layer);
  return {pages.begin(), pages.end()};
}

TEST(HotPages, AreThoseOfTheMostChunks) {
  HotPages hot(2, 10);
  hot.begin(3);
  for (const auto& list : std::vector<std::vector<std::int64_t>>{
           {0, 1, 2}, {0, 3}, {0, 3, 4}, {0, 5, 6}, {5, 7, 8, 9}})
    hot.count(0, pages_of(list), 7);  // 7 to 9 are the chunk's own
  EXPECT_EQ(of(hot, 0), (std::vector<std::int32_t>{0, 3, 5}));
  EXPECT_TRUE(of(hot, 1).empty());
}

// One addition is rounded once wherever it goes.
TEST(HotPages, AVisitIsNotEnough) {
  HotPages hot(1, 10);
  hot.begin(5);
  hot.count(0, pages_of({1, 2, 3}), 10);
  hot.count(0, pages_of({3, 4}), 10);
  EXPECT_EQ(of(hot, 0), (std::vector<std::int32_t>{3}));
}

TEST(HotPages, OfEquallyManyTheLowerIsHot) {
  HotPages hot(1, 10);
  hot.begin(2);
  for (int chunk = 0; chunk < 3; ++chunk) hot.count(0, pages_of({2, 4, 6, 8}), 10);
  EXPECT_EQ(of(hot, 0), (std::vector<std::int32_t>{2, 4}));
}

TEST(HotPages, AreChosenOnceAndForgotten) {
  HotPages hot(1, 10);
  hot.begin(2);
  hot.count(0, pages_of({1}), 10);
  hot.count(0, pages_of({1}), 10);
  EXPECT_EQ(of(hot, 0), (std::vector<std::int32_t>{1}));
  EXPECT_THROW(hot.count(0, pages_of({2}), 10), InternalError);
  hot.begin(2);
  hot.count(0, pages_of({5}), 10);
  hot.count(0, pages_of({5}), 10);
  EXPECT_EQ(of(hot, 0), (std::vector<std::int32_t>{5}));
  hot.begin(0);
  hot.count(0, pages_of({5}), 10);
  hot.count(0, pages_of({5}), 10);
  EXPECT_TRUE(of(hot, 0).empty());
}

TEST(HotPages, AtMostASixteenthOfTheSequence) {
  KvShape shape{.layers = 1, .hot_pages = 64};
  EXPECT_EQ(most_hot_pages(shape, 32768), 64);
  EXPECT_EQ(most_hot_pages(shape, 256), 16);
  EXPECT_EQ(most_hot_pages(shape, 17), 2);
  EXPECT_EQ(most_hot_pages(shape, 1), 1);
  shape.hot_pages = 0;
  EXPECT_EQ(most_hot_pages(shape, 32768), 0);
}

TEST(HotPages, LikeASortOfAllPages) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed, 2);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
    };
    const std::int64_t pages = 20 + below(200), most = below(40);
    std::vector<std::pair<std::int64_t, std::int64_t>> visits;  // minus the count, page
    for (std::int64_t page = 0; page < pages; ++page) visits.emplace_back(0, page);
    HotPages hot(1, pages);
    hot.begin(most);
    for (std::int64_t chunk = 0; chunk < 30; ++chunk) {
      std::vector<std::int64_t> list;
      for (std::int64_t page = 0; page < pages; ++page)
        if (below(pages) < pages / (2 + page % 7)) list.push_back(page);
      const std::int64_t own = below(pages + 1);
      hot.count(0, pages_of(list), own);
      for (const std::int64_t page : list)
        if (page < own) --visits[static_cast<std::size_t>(page)].first;
    }
    std::ranges::sort(visits);
    std::vector<std::int32_t> expected;
    for (std::int64_t i = 0; i < std::min(most, pages); ++i)
      if (const auto [count, page] = visits[static_cast<std::size_t>(i)]; count < -1)
        expected.push_back(static_cast<std::int32_t>(page));
    std::ranges::sort(expected);
    EXPECT_EQ(of(hot, 0), expected) << seed;
  }
}

}  // namespace
}  // namespace longstride
