// Branch-free math for loops under `#pragma omp simd`, and the macro that compiles a function for
// several CPUs.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

// LS_SIMD_CLONES before a function compiles it for AVX-512, for AVX2 with FMA and for any CPU; the
// loader picks one. The loops must be in the function itself or in inline functions that it calls:
// lambdas are not cloned. Empty if the toolchain has no such clones, and under sanitizers, which
// start too late for the loader's choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LS_SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LS_SIMD_CLONES
#endif

namespace longstride::ops::cpu {

// e^x within 2 ulp. -inf and anything below -87.33 (where floats would be subnormal) give 0,
// anything above 88.72 gives inf, NaN stays NaN.
inline float exp_approx(float x) {
  constexpr float kSmallest = -87.3365448f, kLargest = 88.722832f;
  // Adding 1.5 * 2^23 leaves the nearest whole number of t in the low bits of its own
  // representation.
  constexpr float kRound = 12582912.0f;
  const float t = x * 1.44269504f + kRound;
  const float n = t - kRound;
  // ln 2 in two parts; the first has so few bits that n times it is exact.
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // Multiplies by 2^n by adding to the exponent; the two selects discard the result out of range.
  const std::uint32_t bits =
      std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(t) << 23);
  const float y = x < kSmallest ? 0.0f : std::bit_cast<float>(bits);
  return x <= kLargest ? y : x + std::numeric_limits<float>::infinity();
}

// 2^x within 2 ulp for x <= 127; anything below -126 (where floats would be subnormal), -inf too,
// gives 0. Cheaper than exp_approx: for softmax, which may use any base and whose arguments are
// never large.
inline float exp2_approx(float x) {
  constexpr float kRound = 12582912.0f;
  const float t = x + kRound;
  const float r = x - (t - kRound);  // in [-0.5, 0.5], exact
  float p = 1.5403530e-4f;
  p = p * r + 1.3333558e-3f;
  p = p * r + 9.6181291e-3f;
  p = p * r + 5.5504109e-2f;
  p = p * r + 2.4022651e-1f;
  p = p * r + 6.9314718e-1f;
  p = p * r + 1.0f;
  const std::uint32_t bits =
      std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(t) << 23);
  return x < -126.0f ? 0.0f : std::bit_cast<float>(bits);
}

}  // namespace longstride::ops::cpu
