#include "tensor/stochastic_round.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/random.h"
#include "tensor/dtype.h"

namespace longstride {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
float rounded(float x, std::uint32_t random) {
  return to_float(bf16{stochastic_bf16(bits(x), random)});
}

static_assert(stochastic_bf16(0x3f800001u, 0xfffeu) == 0x3f80u);  // a kernel may call it
static_assert(stochastic_bf16(0x3f800001u, 0xffffu) == 0x3f81u);

TEST(StochasticRound, WhatBf16RepresentsStays) {
  for (std::uint32_t high = 0; high < 65536; ++high) {
    const float x = std::bit_cast<float>(high << 16);
    for (const std::uint32_t random : {0u, 1u, 0x8000u, 0xffffu}) {
      if (std::isnan(x))
        EXPECT_TRUE(std::isnan(rounded(x, random)));
      else
        ASSERT_EQ(stochastic_bf16(high << 16, random), high);
    }
  }
}

// Of all 2^16 random numbers, the share that rounds up is exactly the value's distance from its
// lower neighbour.
TEST(StochasticRound, ExpectedValueIsExact) {
  Random random(1);
  std::vector<std::uint32_t> values = {
      bits(1.0f) + 1,  // just above, just below, the middle
      bits(1.0f) - 1, bits(-3.0f) + 0x8000u, 0x00000001u,
      0x80000001u,  // the smallest F32
      0x0000ffffu,    0x007fffffu,           0x00800001u, 0x7f7effffu, 0xff7effffu};
  while (values.size() < 60) {
    const std::uint32_t u = random.next_u32();
    if ((u & 0x7fffffffu) < 0x7f7f0000u) values.push_back(u);
  }
  for (const std::uint32_t u : values) {
    const auto x = static_cast<double>(std::bit_cast<float>(u));
    const double low = to_float(bf16{static_cast<std::uint16_t>(u >> 16)}),
                 high = to_float(bf16{static_cast<std::uint16_t>((u >> 16) + 1)});
    std::int64_t ups = 0;
    for (std::uint32_t r = 0; r < 65536; ++r) {
      const double y = std::bit_cast<float>(std::uint32_t{stochastic_bf16(u, r)} << 16);
      ASSERT_TRUE(y == low || y == high) << x << " became " << y;
      ups += y == high ? 1 : 0;
    }
    EXPECT_EQ(static_cast<double>(ups) / 65536, (x - low) / (high - low)) << x;
  }
}

TEST(StochasticRound, RangeEdges) {
  constexpr std::uint32_t kAll = 0xffffu;
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float largest = to_float(bf16{0x7f7f});
  EXPECT_EQ(rounded(kLargest, kAll), largest);
  EXPECT_EQ(rounded(-kLargest, kAll), -largest);
  EXPECT_EQ(rounded(std::bit_cast<float>(0x7f7effffu), kAll), largest);
  EXPECT_EQ(rounded(kInfinity, kAll), kInfinity);
  EXPECT_EQ(rounded(-kInfinity, kAll), -kInfinity);
  // A NaN whose upper half alone would be an infinity, and one that a carry would make a zero.
  for (const std::uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu})
    for (const std::uint32_t random : {0u, kAll})
      EXPECT_TRUE(std::isnan(to_float(bf16{stochastic_bf16(nan, random)}))) << nan;
  EXPECT_EQ(stochastic_bf16(0x80000000u, kAll), 0x8000u);
}

// With the generator's own bits, the mean of many roundings is right, over tokens and over
// elements.
TEST(RowRounding, MeansAreUnbiased) {
  constexpr int kCount = 1 << 18;
  for (const double share : {1.0 / 4096, 0.1, 0.5, 0.9}) {
    const float x = 1.0f + static_cast<float>(share) * 0x1p-7f;
    const double exact = (static_cast<double>(x) - 1.0) * 128;
    double by_token = 0, by_element = 0, by_key = 0;
    for (int i = 0; i < kCount; ++i) {
      const auto up = [&](std::uint32_t random) {
        return (static_cast<double>(rounded(x, random)) - 1.0) * 128;
      };
      by_token += up(RowRounding(5, i).bits_of(3));
      by_element += up(RowRounding(5, 7).bits_of(static_cast<std::uint32_t>(i)));
      by_key += up(RowRounding(mixed(9, i), 0).bits_of(0));
    }
    const double sigma = std::sqrt(exact * (1 - exact) / kCount);
    EXPECT_NEAR(by_token / kCount, exact, 4 * sigma);
    EXPECT_NEAR(by_element / kCount, exact, 4 * sigma);
    EXPECT_NEAR(by_key / kCount, exact, 4 * sigma);
  }
}

// Random numbers of neighbours are unrelated: over many positions, each of the 16 bits of a number
// agrees with each of its neighbour's in half of the cases.
TEST(RowRounding, NeighboursAreIndependent) {
  constexpr std::int64_t kTokens = 256, kElements = 256;
  const auto number = [](std::int64_t key, std::int64_t token, std::int64_t element) {
    return RowRounding(mixed(3, key), token).bits_of(static_cast<std::uint32_t>(element));
  };
  struct Step {
    std::int64_t key, token, element;
  };
  // Neighbours: the next element of a pair, pair, head of 128, token, key.
  for (const Step step :
       {Step{0, 0, 1}, {0, 0, 2}, {0, 0, 128}, {0, 1, 0}, {0, 128, 0}, {1, 0, 0}}) {
    std::vector<std::int64_t> agree(256, 0);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t e = 0; e < kElements; ++e) {
        const std::uint32_t a = number(0, t, e),
                            b = number(step.key, t + step.token, e + step.element);
        for (unsigned i = 0; i < 16; ++i)
          for (unsigned j = 0; j < 16; ++j) agree[i * 16 + j] += ~((a >> i) ^ (b >> j)) & 1u;
      }
    constexpr double kCases = kTokens * kElements, kSigma = 128;  // sqrt(65536) / 2
    for (std::size_t k = 0; k < agree.size(); ++k)
      EXPECT_NEAR(static_cast<double>(agree[k]), kCases / 2, 5 * kSigma)
          << "bits " << k / 16 << " and " << k % 16 << ", step " << step.key << " " << step.token
          << " " << step.element;
  }
}

TEST(RowRounding, PairsAndElementsAgree) {
  const RowRounding row(11, 1'000'000'007);
  for (std::uint32_t pair = 0; pair < 100; ++pair) {
    EXPECT_EQ(row.bits_of(2 * pair), row.bits_of_pair(pair) & 0xffffu);
    EXPECT_EQ(row.bits_of(2 * pair + 1), row.bits_of_pair(pair) >> 16);
  }
}

TEST(RowRounding, EveryNumberOfTheKeyCounts) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (std::int64_t step = 0; step < 4; ++step)
      for (std::int64_t sequence = 0; sequence < 4; ++sequence)
        for (std::int64_t layer = 0; layer < 4; ++layer)
          for (std::int64_t chunk = 0; chunk < 4; ++chunk)
            keys.insert(mixed(mixed(mixed(mixed(seed, step), sequence), layer), chunk));
  EXPECT_EQ(keys.size(), 1024u);
}

}  // namespace
}  // namespace longstride
