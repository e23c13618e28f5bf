// The dynamic 8-bit code against a search over all of its values. That the values are those of
// bitsandbytes is tested with its fixtures (tests/train/adamw_8bit_test.cc).
#include "tensor/dynamic_code.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace longstride {
namespace {

template <bool kSigned>
void expect_nearest(const DynamicCode<kSigned>& code, float x) {
  const double got = std::fabs(double{x} - code.values[code.nearest(x)]);
  for (const float value : code.values) {
    // Borders are rounded to F32.
    ASSERT_LE(got, std::fabs(double{x} - value) + 3e-7 * std::fabs(double{x})) << x;
  }
}

template <bool kSigned>
void check(const DynamicCode<kSigned>& code) {
  for (std::size_t i = 1; i < code.values.size(); ++i) {
    ASSERT_LT(code.values[i - 1], code.values[i]);
    ASSERT_EQ(code.nearest(code.values[i]), i);
  }
  EXPECT_EQ(code.values[DynamicCode<kSigned>::kZero], 0.0f);
  EXPECT_EQ(code.nearest(0.0f), DynamicCode<kSigned>::kZero);
  EXPECT_EQ(code.nearest(-0.0f), DynamicCode<kSigned>::kZero);
  EXPECT_EQ(code.nearest(1.0f), 255);
  EXPECT_EQ(code.nearest(1.0001f), 255);
  // Every border, both of its neighbours, and bits in even steps.
  for (std::size_t i = 0; i + 1 < code.borders.size(); ++i) {
    const float border = code.borders[i], above = std::nextafter(border, 2.0f);
    EXPECT_EQ(code.nearest(border) + 1, code.nearest(above));
    for (const float x : {border, above, std::nextafter(border, 0.0f)}) {
      expect_nearest(code, x);
      if (kSigned) expect_nearest(code, -x);
    }
  }
  for (std::uint32_t bits = 0; bits <= 0x3f800000u; bits += 9973) {
    expect_nearest(code, std::bit_cast<float>(bits));
    if (kSigned) expect_nearest(code, -std::bit_cast<float>(bits));
  }
  // Out of range, but safe.
  for (const float x : {2.0f, 1e30f, std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()})
    EXPECT_GE(code.nearest(x), 254);
}

TEST(DynamicCode, SignedFindsTheNearest) {
  check(kSignedCode);
  EXPECT_EQ(kSignedCode.nearest(-1.0f), 0);  // there is no -1
  // Halfway, the smaller magnitude.
  EXPECT_EQ(kSignedCode.nearest(kSignedCode.borders[40]), 127 + 40);
  EXPECT_EQ(kSignedCode.nearest(-kSignedCode.borders[40]), 127 - 40);
}

TEST(DynamicCode, UnsignedFindsTheNearest) { check(kUnsignedCode); }

TEST(DynamicCode, ScalesOfTheSmallestNumbersAreFinite) {
  EXPECT_EQ(code_scale(4.0f), 0.25f);
  for (const float absmax : {0.0f, 1e-45f, 1e-39f}) EXPECT_TRUE(std::isfinite(code_scale(absmax)));
}

}  // namespace
}  // namespace longstride
