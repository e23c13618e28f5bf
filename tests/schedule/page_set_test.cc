#include "schedule/page_set.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/random.h"

namespace longstride {
namespace {

std::set<std::int64_t> pages_of(const PageSet& set) {
  std::set<std::int64_t> pages;
  for (const PageRun& run : set.runs())
    for (std::int64_t page = run.begin; page < run.end; ++page) pages.insert(page);
  return pages;
}

PageSet set_of(const std::vector<PageRun>& runs) { return PageSet(runs); }

TEST(PageSet, OneRun) {
  const PageSet set = PageRun{3, 7};
  EXPECT_EQ(set.size(), 4);
  EXPECT_EQ(set.hull(), (PageRun{3, 7}));
  ASSERT_EQ(set.runs().size(), 1u);
  EXPECT_EQ(set.runs()[0], (PageRun{3, 7}));
  EXPECT_EQ(set, set_of({{3, 7}}));
  EXPECT_EQ(set, set_of({{2, 2}, {3, 5}, {5, 7}})) << "runs that touch are one";
  EXPECT_NE(set, set_of({{3, 5}, {6, 7}}));
}

TEST(PageSet, Nothing) {
  EXPECT_TRUE(PageSet().empty());
  EXPECT_EQ(PageSet(PageRun{5, 5}), PageSet());
  EXPECT_TRUE(PageSet().runs().empty());
  EXPECT_FALSE(PageSet().overlaps({0, 9}));
  EXPECT_EQ(set_of({}), PageSet());
}

TEST(PageSet, RunsAscend) {
  EXPECT_THROW(set_of({{3, 5}, {4, 6}}), InternalError);
  EXPECT_THROW(set_of({{3, 5}, {1, 2}}), InternalError);
  EXPECT_THROW(set_of({{5, 3}}), InternalError);
}

TEST(PageSet, RandomSets) {
  constexpr std::int64_t kPages = 24;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::set<std::int64_t> expected;
    std::vector<PageRun> runs;
    for (std::int64_t page = 0; page < kPages; ++page)
      if (random.below(3) != 0) {
        expected.insert(page);
        runs.push_back({page, page + 1});
      }
    const PageSet set(runs), copy = set;
    EXPECT_EQ(pages_of(copy), expected);
    EXPECT_EQ(set.size(), std::ssize(expected));
    for (std::size_t i = 1; i < set.runs().size(); ++i)
      EXPECT_LT(set.runs()[i - 1].end, set.runs()[i].begin);
    for (std::int64_t begin = 0; begin <= kPages; ++begin) {
      EXPECT_EQ(set.contains(begin), expected.contains(begin));
      for (std::int64_t end = begin; end <= kPages; ++end) {
        const std::set<std::int64_t> within(expected.lower_bound(begin), expected.lower_bound(end));
        EXPECT_EQ(pages_of(set.intersection({begin, end})), within);
        EXPECT_EQ(set.overlaps({begin, end}), !within.empty());
        std::int64_t pages = 0;
        set.for_runs_in({begin, end}, [&](PageRun run) { pages += run.size(); });
        EXPECT_EQ(pages, std::ssize(within));
      }
    }
  }
}

}  // namespace
}  // namespace longstride
