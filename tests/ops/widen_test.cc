// The vectorised conversions against the scalar ones of tensor/dtype.h, bit for bit.
#include "ops/cpu/widen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace longstride::ops::cpu {
namespace {

std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits(x.size());
  std::memcpy(bits.data(), x.data(), 4 * x.size());
  return bits;
}

template <class E>
void check_all_patterns() {
  std::vector<E> x;
  std::vector<float> want;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const E element{static_cast<std::uint16_t>(bits)};
    const float value = to_float(element);
    if (std::isnan(value)) continue;  // NaNs may be quieted
    x.push_back(element);
    want.push_back(value);
  }
  std::vector<float> got(x.size());
  const auto n = static_cast<std::int64_t>(x.size());
  widen(ConstView(x.data(), dtype_of<E>(), {n}), 0, n, got.data());
  EXPECT_EQ(bits_of(got), bits_of(want));
}

TEST(Widen, AgreesOnEveryBf16) { check_all_patterns<bf16>(); }
TEST(Widen, AgreesOnEveryF16) { check_all_patterns<f16>(); }

TEST(Widen, KeepsNan) {
  const f16 x[2] = {{0x7e00}, {0xfc01}};
  const bf16 z[2] = {{0x7fc0}, {0xff81}};
  float y[2];
  widen(ConstView(x, DType::kF16, {2}), 0, 2, y);
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  widen(ConstView(z, DType::kBF16, {2}), 0, 2, y);
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
}

TEST(Narrow, AgreesOnFloatsOfEveryExponent) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 40009) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  // Ties, and their neighbours on either side.
  for (std::uint32_t top = 0; top < 0x10000u; top += 3) {
    for (std::uint32_t low : {0x7fffu, 0x8000u, 0x8001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u}) {
      x.push_back(std::bit_cast<float>((top << 16) | low));
    }
  }
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<bf16> b(x.size());
  std::vector<f16> h(x.size());
  narrow(x.data(), n, View(b.data(), DType::kBF16, {n}), 0);
  narrow(x.data(), n, View(h.data(), DType::kF16, {n}), 0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(b[i].bits, to_bf16(x[i]).bits) << x[i];
    ASSERT_EQ(h[i].bits, to_f16(x[i]).bits) << x[i];
  }
}

}  // namespace
}  // namespace longstride::ops::cpu
