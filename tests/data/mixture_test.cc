#include "data/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/random.h"

namespace longstride {
namespace {

using Shares = std::vector<double>;

// Walks the first positions: every source is within one sample of its share after each of them, and
// gives its own samples one after the other.
void check(const Shares& shares, std::int64_t positions) {
  Mixture mixture(shares);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> taken(shares.size(), 0);
  double most = 0;
  for (std::int64_t i = 0; i < positions; ++i) {
    const Mixture::Place place = mixture.at(i);
    ASSERT_LT(place.source, shares.size());
    ASSERT_EQ(place.index, taken[place.source]) << "sample " << i;
    ++taken[place.source];
    for (std::size_t k = 0; k < shares.size(); ++k)
      most = std::max(most, std::abs(static_cast<double>(taken[k]) -
                                     static_cast<double>(i + 1) * shares[k] / all));
  }
  EXPECT_LT(most, 1.0);
}

TEST(Mixture, SharesWithinOneSampleAtEveryPosition) {
  check({1}, 50);
  check({0.7, 0.3}, 2000);
  check({7, 3}, 100);
  check({0.5, 0.25, 0.125, 0.125}, 2000);
  check({1, 1, 1, 1, 1, 1, 1}, 1000);
  check({0.999, 0.001}, 5000);
  check({0.3333333333333333, 0.6666666666666666}, 3000);
  check({1e-6, 1e6}, 3000);
  // Many small ones beside a large one: they must not all come at once.
  Shares many(60, 0.001);
  many.push_back(0.94);
  check(many, 5000);
}

TEST(Mixture, AnyShares) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    Shares shares(1 + random.below(12));
    for (double& share : shares) share = std::exp(8 * random.uniform() - 4);
    check(shares, 2500);
  }
}

TEST(Mixture, APositionIsASingleInteger) {
  const Shares shares = {0.61, 0.29, 0.1};
  Mixture walked(shares);
  std::vector<Mixture::Place> places;
  for (std::int64_t i = 0; i < 5000; ++i) places.push_back(walked.at(i));
  for (const std::int64_t i : {4999, 0, 1024, 1023, 3071, 100, 99, 4998}) {
    Mixture fresh(shares);
    for (Mixture* mixture : {&fresh, &walked}) {
      EXPECT_EQ(mixture->at(i).source, places[static_cast<std::size_t>(i)].source);
      EXPECT_EQ(mixture->at(i).index, places[static_cast<std::size_t>(i)].index);
    }
  }
}

// A period of 10 samples: any position is found at once.
TEST(Mixture, FarPositions) {
  Mixture mixture(Shares{0.7, 0.3});
  const std::int64_t far = std::int64_t{1} << 50;
  std::vector<std::int64_t> next = {-1, -1};
  for (std::int64_t i = far; i < far + 40; ++i) {
    const Mixture::Place place = mixture.at(i);
    const double share = place.source == 0 ? 0.7 : 0.3;
    EXPECT_LT(std::abs(static_cast<double>(place.index) - share * static_cast<double>(i)), 1.5);
    if (next[place.source] >= 0) {
      EXPECT_EQ(place.index, next[place.source]);
    }
    next[place.source] = place.index + 1;
  }
}

TEST(Mixture, SharesAreRelative) {
  Mixture a(Shares{0.7, 0.3}), b(Shares{7, 3}), c(Shares{70000, 30000});
  for (std::int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(a.at(i).source, b.at(i).source);
    EXPECT_EQ(a.at(i).source, c.at(i).source);
  }
}

}  // namespace
}  // namespace longstride
