#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace longstride {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known answers published with Random123.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, WalksTheBlocksOfItsStream) {
  Random random(0x1234567890abcdef, 0xfedcba0987654321);
  for (std::uint32_t block = 0; block < 3; ++block)
    for (const std::uint32_t expected :
         philox({block, 0, 0x87654321, 0xfedcba09}, {0x90abcdef, 0x12345678}))
      EXPECT_EQ(random.next_u32(), expected);
}

TEST(Random, RepeatsAndCopiesContinue) {
  Random a(7, 3), b(7, 3);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(a.next_u32(), b.next_u32());
  Random c = a;  // in the middle of a block
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t x = a.next_u64();
    EXPECT_EQ(x, b.next_u64());
    EXPECT_EQ(x, c.next_u64());
  }
}

TEST(Random, SeedsAndStreamsDiffer) {
  std::set<std::uint64_t> first;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32, 1ull << 63})
    for (std::uint64_t stream : {0ull, 1ull, 1ull << 32, 1ull << 63})
      first.insert(Random(seed, stream).next_u64());
  EXPECT_EQ(first.size(), 16u);
}

TEST(Random, BelowStaysBelow) {
  Random random(11);
  for (const std::uint64_t n : {1ull, 2ull, 3ull, 1000ull, 1ull << 32, (1ull << 63) + 1, ~0ull})
    for (int i = 0; i < 200; ++i) EXPECT_LT(random.below(n), n);
}

// Chi squared with 9 degrees of freedom: above 27.9 once in a thousand, and the seed is fixed.
TEST(Random, BelowIsEven) {
  Random random(12);
  std::vector<double> counts(10);
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) ++counts[random.below(10)];
  double chi = 0;
  for (const double count : counts)
    chi += (count - kDraws / 10) * (count - kDraws / 10) / (kDraws / 10);
  EXPECT_LT(chi, 27.9);
}

// Without rejection, values below 2^62 would come twice as often as those above.
TEST(Random, BelowIsEvenWhereTheRangeDoesNotDivide) {
  Random random(13);
  constexpr std::uint64_t n = 3ull << 62;
  int low = 0;
  for (int i = 0; i < 30000; ++i) low += random.below(n) < (1ull << 62);
  EXPECT_NEAR(low, 10000, 400);
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  Random random(14);
  double sum = 0, squares = 0, fourth = 0, uniform = 0, least = 1, most = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.uniform(), x = random.normal();
    ASSERT_TRUE(u >= 0 && u < 1 && std::isfinite(x));
    least = std::min(least, u);
    most = std::max(most, u);
    uniform += u;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(uniform / kDraws, 0.5, 0.003);
  EXPECT_LT(least, 1e-4);
  EXPECT_GT(most, 1 - 1e-4);
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.015);
  EXPECT_NEAR(fourth / kDraws, 3, 0.15);
}

}  // namespace
}  // namespace longstride
