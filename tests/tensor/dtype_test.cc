#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"

namespace longstride {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(DType, SizesAndNames) {
  const std::vector<std::tuple<DType, std::int64_t, std::string>> expected = {
      {DType::kF32, 4, "F32"}, {DType::kBF16, 2, "BF16"}, {DType::kF16, 2, "F16"},
      {DType::kI32, 4, "I32"}, {DType::kI64, 8, "I64"},   {DType::kU8, 1, "U8"},
      {DType::kF64, 8, "F64"}, {DType::kI8, 1, "I8"},     {DType::kF8E4M3, 1, "F8_E4M3"}};
  for (const auto& [dtype, size, name] : expected) {
    EXPECT_EQ(size_of(dtype), size);
    EXPECT_EQ(name_of(dtype), name);
  }
}

TEST(Bf16, EveryValueComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = to_float(bf16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(x))
      EXPECT_TRUE(std::isnan(to_float(to_bf16(x))));
    else
      ASSERT_EQ(to_bf16(x).bits, bits);
  }
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_bf16(from_bits(0x3f807fff)).bits, 0x3f80);  // just below the half
  EXPECT_EQ(to_bf16(from_bits(0x3f808000)).bits, 0x3f80);  // half: down to the even one
  EXPECT_EQ(to_bf16(from_bits(0x3f808001)).bits, 0x3f81);  // just above
  EXPECT_EQ(to_bf16(from_bits(0x3f818000)).bits, 0x3f82);  // half: up to the even one
  EXPECT_EQ(to_bf16(from_bits(0xbf818000)).bits, 0xbf82);
  EXPECT_EQ(to_bf16(from_bits(0x3fffffff)).bits, 0x4000);  // carries into the exponent
  EXPECT_EQ(to_bf16(from_bits(0x00008000)).bits, 0x0000);  // subnormals round alike
  EXPECT_EQ(to_bf16(from_bits(0x00018000)).bits, 0x0002);
}

TEST(Bf16, InfinityAndNaN) {
  EXPECT_EQ(to_bf16(kInfinity).bits, 0x7f80);
  EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_bf16(from_bits(0x7f7f7fff)).bits, 0x7f7f);  // the largest that stays finite
  // NaNs whose payload is in the lost bits must not become infinity.
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0x7fc00000u})
    EXPECT_TRUE(std::isnan(to_float(to_bf16(from_bits(bits))))) << bits;
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
}

TEST(F16, EveryValueComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 half{static_cast<std::uint16_t>(bits)};
    const float x = to_float(half);
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    ASSERT_EQ(std::isnan(x), is_nan) << bits;
    if (is_nan) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(x))));
      EXPECT_EQ(to_f16(x).bits & 0x8000, bits & 0x8000);
    } else {
      ASSERT_EQ(to_f16(x).bits, bits);
    }
  }
}

TEST(F16, ValuesAreThoseOfTheFormat) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10);
    const double mantissa = bits & 0x3ff;
    const double value =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(to_float(f16{static_cast<std::uint16_t>(bits)})), value) << bits;
    ASSERT_EQ(to_float(f16{static_cast<std::uint16_t>(bits | 0x8000)}), static_cast<float>(-value));
  }
}

// Between every two neighbours: the midpoint rounds to the even one, any other value to the nearer
// one.
TEST(F16, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = to_float(f16{static_cast<std::uint16_t>(bits)});
    const float high = to_float(f16{static_cast<std::uint16_t>(bits + 1)});
    const float half = (low + high) / 2;  // exact in float
    ASSERT_EQ(to_f16(half).bits, bits + (bits & 1)) << bits;
    ASSERT_EQ(to_f16(-half).bits, 0x8000 | (bits + (bits & 1))) << bits;
    ASSERT_EQ(to_f16(std::nextafter(half, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(to_f16(std::nextafter(half, kInfinity)).bits, bits + 1) << bits;
  }
}

TEST(F16, OverflowsToInfinity) {
  EXPECT_EQ(to_f16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(to_f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);  // half way to 65536
  EXPECT_EQ(to_f16(-65520.0f).bits, 0xfc00);
  EXPECT_EQ(to_f16(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(to_f16(kInfinity).bits, 0x7c00);
  EXPECT_EQ(to_f16(-kInfinity).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(to_float(to_f16(kNaN))));
  EXPECT_TRUE(std::isnan(to_float(to_f16(from_bits(0x7f800001)))));
}

TEST(F16, SmallestValues) {
  EXPECT_EQ(to_f16(0x1.0p-24f).bits, 0x0001);
  EXPECT_EQ(to_f16(0x1.0p-25f).bits, 0x0000);  // half of it: to even, zero
  EXPECT_EQ(to_f16(0x1.000002p-25f).bits, 0x0001);
  EXPECT_EQ(to_f16(-0x1.0p-26f).bits, 0x8000);
  EXPECT_EQ(to_f16(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
  EXPECT_EQ(to_f16(0x1.ff8p-15f).bits, 0x03ff);  // the largest subnormal
  EXPECT_EQ(to_f16(0x1.0p-14f).bits, 0x0400);    // the smallest normal
  EXPECT_EQ(to_f16(-0.0f).bits, 0x8000);
}

}  // namespace
}  // namespace longstride
