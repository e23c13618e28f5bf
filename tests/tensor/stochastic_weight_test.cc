#include "tensor/stochastic_weight.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "base/random.h"
#include "tensor/dtype.h"

namespace longstride {
namespace {

float rounded(float x, std::uint32_t random) {
  return to_float(f16{stochastic_f16(std::bit_cast<std::uint32_t>(x), random)});
}

TEST(StochasticWeight, F16KeepsExactValues) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 x{static_cast<std::uint16_t>(bits)};
    for (const std::uint32_t random : {0u, 0x1234u, 0xffffu}) {
      const float y = rounded(to_float(x), random);
      if (std::isnan(to_float(x)))
        EXPECT_TRUE(std::isnan(y));
      else
        EXPECT_EQ(std::bit_cast<std::uint32_t>(y), std::bit_cast<std::uint32_t>(to_float(x)));
    }
  }
}

// Over all random bits, either neighbour, and the mean is the value.
TEST(StochasticWeight, F16IsUnbiased) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    const int exponent = static_cast<int>(random.below(38)) - 27;  // to 2^-27: below subnormals
    const auto x = static_cast<float>((random.uniform() * 2 - 1) * std::ldexp(1.0, exponent));
    std::set<float> seen;
    double sum = 0;
    for (std::uint32_t r = 0; r < 65536; ++r) {
      const float y = rounded(x, r);
      seen.insert(y);
      sum += y;
    }
    ASSERT_LE(seen.size(), 2u) << x;
    const double spacing = *seen.rbegin() - *seen.begin();
    EXPECT_LE(*seen.begin(), x);
    EXPECT_GE(*seen.rbegin(), x);
    EXPECT_NEAR(sum / 65536, x, 0x1p-16 * spacing + 1e-12 * std::fabs(x));
  }
}

TEST(StochasticWeight, F16AtTheEnds) {
  for (const std::uint32_t random : {0u, 0xffffu}) {
    EXPECT_EQ(rounded(65519.0f, random), 65504.0f);
    EXPECT_EQ(rounded(-65535.0f, random), -65504.0f);
    EXPECT_EQ(rounded(65536.0f, random), std::numeric_limits<float>::infinity());
    EXPECT_EQ(rounded(-1e30f, random), -std::numeric_limits<float>::infinity());
    EXPECT_EQ(rounded(1e-30f, random), 0.0f);
    EXPECT_EQ(rounded(-1e-40f, random), 0.0f);
  }
}

// Every part of the key counts, and elements have bits of their own.
TEST(StochasticWeight, KeysDiffer) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::int64_t update = 1; update < 10; ++update)
      for (std::int64_t parameter = 0; parameter < 10; ++parameter)
        keys.insert(weight_rounding_key(seed, update, parameter));
  EXPECT_EQ(keys.size(), 900u);
  std::set<std::uint32_t> bits;
  for (std::int64_t element = 0; element < 2000; element += 2)
    bits.insert(element_row(7, element).bits_of_pair(place_in_row(element) / 2));
  EXPECT_EQ(bits.size(), 1000u);
}

}  // namespace
}  // namespace longstride
