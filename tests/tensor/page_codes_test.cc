#include "tensor/page_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/random.h"
#include "tensor/stochastic_round.h"

namespace longstride {
namespace {

constexpr DType kCodes[] = {DType::kI8, DType::kF8E4M3};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static_assert(nearest_code(DType::kI8, -2.5f) == 0xfe);       // a kernel may call it
static_assert(nearest_code(DType::kF8E4M3, 448.0f) == 0x7e);  // the largest
static_assert(page_bytes_of(DType::kI8, 16, 2, 64) == 16 * 2 * 2 * (64 + 2));
static_assert(page_bytes_of(DType::kF8E4M3, 1, 1, 3) == 2 * 5);
static_assert(page_bytes_of(DType::kI8, 16, 2, 64, true) == 16 * 2 * 2 * (64 + 2) + 2 * 2 * 64 * 2);
static_assert(page_bytes_of(DType::kBF16, 16, 2, 64) == 16 * 2 * 2 * 64 * 2);

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// Whether a code is one that elements get: -128 and the E4M3 numbers for NaN are none.
bool is_used(DType t, int code) { return t == DType::kI8 ? code != 0x80 : (code & 0x7f) != 0x7f; }

// The format as its definition says it.
double plain_value(DType t, int code) {
  if (t == DType::kI8) return code < 128 ? code : code - 256;
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? mantissa * 0x1p-9 : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return code < 128 ? magnitude : -magnitude;
}

// The nearest of all codes with the sign of x; of two equally near ones the even.
int plain_nearest(DType t, double x) {
  int best = -1;
  for (int code = 0; code < 256; ++code) {
    const double value = plain_value(t, code);
    const bool negative = t == DType::kI8 && value == 0 ? std::signbit(x) : code >= 128;
    if (!is_used(t, code) || negative != std::signbit(x)) continue;
    const double far = std::fabs(value - x),
                 least = best < 0 ? kInfinity : std::fabs(plain_value(t, best) - x);
    if (far < least || (far == least && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(PageCodes, CentresAreMeansThatAreFinite) {
  EXPECT_EQ(to_float(centre_of(3.0f, 2.0f)), 1.5f);
  EXPECT_EQ(to_float(centre_of(1.0f + 0x1p-8f, 1.0f)), 1.0f);  // a tie goes to even
  EXPECT_EQ(to_float(centre_of(-0x1p127f, 2.0f + 0x1p-20f)), -0x1p126f);
  for (const float sum : {kNan, kInfinity, -kInfinity, 0x1p126f, -0x1p127f})
    EXPECT_EQ(centre_of(sum, 1.0f).bits, 0) << sum;
}

TEST(PageCodes, EveryCodeSurvives) {
  for (const DType t : kCodes)
    for (int code = 0; code < 256; ++code) {
      const float value = code_value(t, static_cast<std::uint8_t>(code));
      if (!is_used(t, code)) continue;
      EXPECT_EQ(value, plain_value(t, code)) << name_of(t) << " " << code;
      EXPECT_EQ(nearest_code(t, value), code) << name_of(t);
      for (const std::uint32_t random : {0u, 1u, 0x8000u, 0xffffu})
        EXPECT_EQ(random_code(t, value, random), code) << name_of(t) << " " << random;
    }
}

TEST(PageCodes, NearestIsNearestAndTiesAreEven) {
  for (const DType t : kCodes) {
    // All ties and their neighbours, then a sweep of the numbers with 16 bits.
    std::vector<float> values;
    for (int code = 0; code < 126; ++code) {
      const auto middle = static_cast<float>((plain_value(t, code) + plain_value(t, code + 1)) / 2);
      for (const float x : {std::nextafterf(middle, 0.0f), middle, std::nextafterf(middle, 1e3f)})
        values.insert(values.end(), {x, -x});
    }
    for (std::uint32_t high = 0; high < 65536; ++high) {
      const float x = std::bit_cast<float>(high << 16);
      if (std::fabs(x) <= code_limit(t)) values.push_back(x);
    }
    for (int i = -32768; i < 32768; ++i)
      values.push_back(static_cast<float>(i) / 32768 * code_limit(t));
    for (const float x : values) ASSERT_EQ(nearest_code(t, x), plain_nearest(t, x)) << x;
  }
}

TEST(PageCodes, WhatIsBeyondTheRangeBecomesTheLargestCode) {
  for (const DType t : kCodes)
    for (const float factor : {1.0f + 0x1p-23f, 1.01f, 1.5f, 10.0f, 1e30f})
      for (const float sign : {1.0f, -1.0f}) {
        const float limit = sign * code_limit(t);
        EXPECT_EQ(code_value(t, nearest_code(t, limit * factor)), limit) << factor;
        for (const std::uint32_t random : {0u, 0xffffu})
          EXPECT_EQ(code_value(t, random_code(t, limit * factor, random)), limit) << factor;
      }
}

// Of all 2^16 random numbers, the share that rounds up is the value's distance from its lower
// neighbour, cut to 16 bits.
TEST(PageCodes, ExpectedValueIsExact) {
  for (const DType t : kCodes) {
    Random random(1);
    std::vector<float> values = {0x1p-9f, 0x1p-10f, 0x1.8p-7f, 0x1.fffffep-7f, 0.5f,   1e-3f,
                                 1e-6f,   0x1p-24f, 0x1p-26f,  1e-12f,         1e-40f, 99.5f};
    while (values.size() < 40)
      values.push_back(static_cast<float>((2 * random.uniform() - 1) * code_limit(t)));
    while (values.size() < 60) values.push_back(static_cast<float>(random.normal() * 0.01));
    for (const float x : values) {
      int low = nearest_code(t, std::fabs(x));
      if (plain_value(t, low) > std::fabs(x)) --low;
      const double below = plain_value(t, low), above = plain_value(t, low + 1),
                   part = (std::fabs(x) - below) / (above - below);
      std::int64_t ups = 0;
      for (std::uint32_t r = 0; r < 65536; ++r) {
        const double y = std::copysign(1.0, x) * code_value(t, random_code(t, x, r));
        ASSERT_TRUE(y == below || y == above) << x << " became " << y;
        ups += y == above ? 1 : 0;
      }
      EXPECT_EQ(static_cast<double>(ups), std::floor(part * 65536)) << x;
    }
  }
}

// With the random bits of rows, as operations take them.
TEST(PageCodes, RoundingIsUnbiasedOverKeys) {
  constexpr int kKeys = 10'000;
  for (const DType t : kCodes)
    for (const float x : {0.3f, -7.77f, 100.25f, 0.004f, -0.0171f}) {
      double sum = 0, squares = 0;
      std::set<std::uint8_t> met;
      for (int key = 0; key < kKeys; ++key) {
        const RowRounding row(static_cast<std::uint64_t>(key), 5);
        const std::uint8_t code = random_code(t, x, row.bits_of(77));
        const double error = code_value(t, code) - x;
        met.insert(code);
        sum += error;
        squares += error * error;
      }
      EXPECT_EQ(met.size(), 2u) << x;
      EXPECT_LT(std::fabs(sum), 4 * std::sqrt(squares)) << name_of(t) << " " << x;
    }
}

TEST(PageCodes, ScaleIsTheSmallestThatSuffices) {
  Random random(2);
  for (const DType t : kCodes) {
    const double limit = code_limit(t);
    std::vector<std::uint32_t> values = {bits(kLeastRow), bits(1.0f), bits(code_limit(t)),
                                         bits(std::numeric_limits<float>::max())};
    // Every scale's own limit, and the numbers next to it.
    for (std::uint32_t s = 0x3f80; s < 0x4080; ++s)
      for (const std::uint32_t step : {0u, 1u, 2u}) {
        const std::uint32_t most =
            bits(to_float(bf16{static_cast<std::uint16_t>(s)}) * code_limit(t));
        values.insert(values.end(), {most + step, most - step});
      }
    while (values.size() < 20'000) {
      const std::uint32_t u = random.next_u32() & 0x7fffffffu;
      if (u >= bits(kLeastRow) && u < 0x7f800000u) values.push_back(u);
    }
    for (const std::uint32_t most : values) {
      const bf16 scale = row_scale(t, most), less{static_cast<std::uint16_t>(scale.bits - 1)};
      const double magnitude = std::bit_cast<float>(most);
      ASSERT_GE(to_float(scale) * limit, magnitude) << name_of(t) << " " << most;
      ASSERT_LT(to_float(less) * limit, magnitude) << name_of(t) << " " << most;
      const float inverse = inverse_scale(scale);
      ASSERT_TRUE(std::isnormal(inverse)) << magnitude;
      // So the largest element is within the range, but for the product's rounding.
      ASSERT_LE(scaled_element(std::bit_cast<float>(most), inverse), limit * (1 + 0x1p-22));
    }
  }
}

// A row as operations code it, and as it is read.
std::vector<float> coded_and_read(DType t, const std::vector<float>& row) {
  std::uint32_t most = 0;
  for (const float x : row) most = std::max(most, bits(x) & 0x7fffffffu);
  const bf16 scale = row_scale(t, most);
  const float inverse = inverse_scale(scale);
  std::vector<float> read;
  for (const float x : row)
    read.push_back(code_value(t, nearest_code(t, scaled_element(x, inverse))) * to_float(scale));
  return read;
}

TEST(PageCodes, ARowThatIsNotFiniteIsReadAsNan) {
  for (const DType t : kCodes)
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      const std::uint32_t most = std::max(bits(bad) & 0x7fffffffu, bits(3.0f));
      EXPECT_EQ(row_scale(t, most).bits, 0x7fc0);
      EXPECT_EQ(inverse_scale(row_scale(t, most)), 0.0f);
      EXPECT_EQ(nearest_code(t, scaled_element(bad, 0.0f)), 0);
      for (const float y : coded_and_read(t, {1.0f, bad, 0.0f, -3.0f})) EXPECT_TRUE(std::isnan(y));
    }
}

TEST(PageCodes, RowsOfZerosAndTinyRowsBecomeZero) {
  const float below = std::nextafterf(kLeastRow, 0.0f);
  for (const DType t : kCodes) {
    const std::vector<float> zeros(4);
    EXPECT_EQ(coded_and_read(t, {0.0f, -0.0f, 0.0f, 0.0f}), zeros);
    EXPECT_EQ(coded_and_read(t, {below, -below, 1e-38f, 1e-45f}), zeros);
    EXPECT_EQ(row_scale(t, bits(below)).bits, 0);
    EXPECT_EQ(code_value(t, 0), 0.0f);
    // At the limit, a row is kept.
    EXPECT_NEAR(coded_and_read(t, {kLeastRow, 0.0f})[0] / kLeastRow, 1, 0x1p-4);
  }
}

TEST(PageCodes, ErrorIsHalfAStep) {
  Random random(3);
  for (const DType t : kCodes)
    for (const double size : {1e-20, 1e-3, 1.0, 1e30}) {
      std::vector<float> row(128);
      float most = 0;
      for (float& x : row) {
        x = static_cast<float>(random.normal() * size);
        most = std::max(most, std::fabs(x));
      }
      const std::vector<float> read = coded_and_read(t, row);
      for (std::size_t i = 0; i < row.size(); ++i) {
        // The scale may be 2^-7 larger than needed.
        const double step = t == DType::kI8
                                ? most / 127 * (1 + 0x1p-7)
                                : std::max(std::fabs(row[i]) * 0x1p-3, most / 448 * 0x1p-8);
        EXPECT_LE(std::fabs(read[i] - row[i]), step * 0.5001) << row[i];
      }
    }
}

TEST(PageCodes, ProductsOfCodesAndScalesAreExact) {
  for (const DType t : kCodes)
    for (int code = 0; code < 256; ++code)
      for (std::uint32_t mantissa = 0; mantissa < 128; ++mantissa)
        for (const std::uint32_t exponent : {20u, 127u, 245u}) {
          if (!is_used(t, code)) continue;
          const float value = code_value(t, static_cast<std::uint8_t>(code)),
                      scale = to_float(bf16{static_cast<std::uint16_t>(exponent << 7 | mantissa)});
          ASSERT_EQ(static_cast<double>(value * scale), static_cast<double>(value) * scale);
        }
}

}  // namespace
}  // namespace longstride
