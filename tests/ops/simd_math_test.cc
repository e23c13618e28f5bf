#include "ops/cpu/simd_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace longstride::ops::cpu {
namespace {

// Through a loop that the compiler vectorises, as the operations call it.
LS_SIMD_CLONES void exp_all(const float* x, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = exp_approx(x[i]);
}

std::vector<float> exp_all(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  exp_all(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  return y;
}

TEST(ExpApprox, IsWithinTwoUlpEverywhere) {
  std::vector<float> x;
  for (std::uint32_t bits = 0x33000000u; bits < 0x42b17200u; bits += 1021) {
    const auto value = std::bit_cast<float>(bits);
    x.push_back(value);
    if (value < 87.3f) x.push_back(-value);
  }
  ASSERT_GT(x.size(), 100000u);
  const std::vector<float> y = exp_all(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const auto rounded = static_cast<float>(exact);
    const double ulp =
        static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity())) -
        rounded;
    worst = std::max(worst, std::fabs(y[i] - exact) / ulp);
  }
  EXPECT_LE(worst, 2.0);
}

TEST(ExpApprox, IsRightAtTheEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> y =
      exp_all({-kInfinity, -1e30f, -1000.0f, -88.0f, 0.0f, -0.0f, 1e-40f, 89.0f, 1e30f, kInfinity});
  const std::vector<float> want = {0, 0, 0, 0, 1, 1, 1, kInfinity, kInfinity, kInfinity};
  EXPECT_EQ(y, want);
  EXPECT_NEAR(exp_all({-87.33f})[0], 1.18321e-38f, 1e-43f);
  EXPECT_LT(exp_all({88.7228f})[0], kInfinity);
  for (std::uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0x7f800001u}) {
    EXPECT_TRUE(std::isnan(exp_all({std::bit_cast<float>(nan)})[0])) << nan;
  }
}

}  // namespace
}  // namespace longstride::ops::cpu
