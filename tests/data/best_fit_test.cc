#include "data/best_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/random.h"

namespace longstride {
namespace {

using Longs = std::vector<std::int64_t>;

// Best fit as it is defined, one bin after the other.
std::size_t bins_by_definition(Longs lengths, std::int64_t capacity) {
  std::ranges::sort(lengths, std::greater());
  Longs rooms;
  for (const std::int64_t length : lengths) {
    auto best = rooms.end();
    for (auto room = rooms.begin(); room != rooms.end(); ++room)
      if (*room >= length && (best == rooms.end() || *room < *best)) best = room;
    if (best == rooms.end())
      rooms.push_back(capacity - length);
    else
      *best -= length;
  }
  return rooms.size();
}

void check(const Longs& lengths, std::int64_t capacity) {
  const Bins bins = best_fit(lengths, capacity);
  ASSERT_EQ(bins.starts.front(), 0);
  ASSERT_EQ(bins.starts.back(), std::ssize(lengths));
  Longs seen = bins.items;
  std::ranges::sort(seen);
  Longs all(lengths.size());
  std::iota(all.begin(), all.end(), std::int64_t{0});
  EXPECT_EQ(seen, all) << "an item is left out or used twice";
  int less_than_half = 0;
  std::int64_t first_before = -1;
  for (std::size_t b = 0; b + 1 < bins.starts.size(); ++b) {
    const auto begin = bins.items.begin() + bins.starts[b],
               end = bins.items.begin() + bins.starts[b + 1];
    ASSERT_LT(begin, end) << "an empty bin";
    EXPECT_TRUE(std::is_sorted(begin, end));
    EXPECT_GT(*begin, first_before);
    first_before = *begin;
    std::int64_t sum = 0;
    for (auto i = begin; i != end; ++i) sum += lengths[static_cast<std::size_t>(*i)];
    EXPECT_LE(sum, capacity);
    less_than_half += 2 * sum <= capacity ? 1 : 0;
  }
  EXPECT_LE(less_than_half, 1) << "two bins would fit into one";
  EXPECT_EQ(bins.starts.size() - 1, bins_by_definition(lengths, capacity));
}

TEST(BestFit, TheFullestBinThatHasRoom) {
  // 7 and 6 open two bins; 3 fits exactly beside 7, then 4 beside 6.
  const Bins bins = best_fit(Longs{3, 6, 4, 7}, 10);
  EXPECT_EQ(bins.items, (Longs{0, 3, 1, 2}));
  EXPECT_EQ(bins.starts, (Longs{0, 2, 4}));
}

TEST(BestFit, NoItems) {
  const Bins bins = best_fit({}, 10);
  EXPECT_TRUE(bins.items.empty());
  EXPECT_EQ(bins.starts, (Longs{0}));
}

TEST(BestFit, AnyLengths) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const auto capacity = static_cast<std::int64_t>(1 + random.below(seed % 3 == 0 ? 12 : 5000));
    Longs lengths(random.below(200));
    for (std::int64_t& x : lengths)
      x = static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(capacity)));
    check(lengths, capacity);
  }
}

TEST(BestFit, LengthsBeyond32Bits) {
  const std::int64_t huge = std::int64_t{1} << 40;
  check({huge, 1, huge - 1, huge / 2, huge / 2, 3}, huge);
}

TEST(BestFit, TheSameEveryTime) {
  Random random(5);
  Longs lengths(1000);
  for (std::int64_t& x : lengths) x = static_cast<std::int64_t>(1 + random.below(50));
  const Bins a = best_fit(lengths, 64), b = best_fit(lengths, 64);
  EXPECT_EQ(a.items, b.items);
  EXPECT_EQ(a.starts, b.starts);
}

// Ten million documents of every length, as a large corpus has them.
TEST(BestFit, SlowTenMillionDocuments) {
  Random random(7);
  Longs lengths(10'000'000);
  for (std::int64_t& x : lengths) {
    const std::uint64_t most = std::uint64_t{1} << (1 + random.below(17));
    x = static_cast<std::int64_t>(1 + random.below(most));
  }
  const auto start = std::chrono::steady_clock::now();
  const Bins bins = best_fit(lengths, 131072);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", static_cast<int>(1000 * took.count()));
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  EXPECT_LE(std::ssize(bins.starts) - 1, total / 131072 + total / 131072 / 100 + 2) << "1% unused";
  EXPECT_LT(took.count(), 60);
}

}  // namespace
}  // namespace longstride
