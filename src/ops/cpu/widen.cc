#include "ops/cpu/widen.h"

#include <algorithm>
#include <bit>

#include "base/thread_pool.h"
#include "ops/cpu/simd_math.h"

namespace longstride::ops::cpu {
namespace {

LS_SIMD_CLONES void widen_bf16(const bf16* x, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(x[i]);
}

LS_SIMD_CLONES void widen_f16(const f16* x, std::int64_t n, float* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t sign = (x[i].bits & 0x8000u) << 16;
    const std::uint32_t magnitude = x[i].bits & 0x7fffu;
    // The exponent's bias grows by 112; subnormals become normal by multiplying an integer.
    const std::uint32_t normal = (magnitude << 13) + (112u << 23);
    const auto subnormal = std::bit_cast<std::uint32_t>(
        static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1.0p-24f);
    const std::uint32_t special = (magnitude << 13) | 0x7f800000u;
    const std::uint32_t finite = magnitude < 0x400u ? subnormal : normal;
    out[i] = std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? special : finite));
  }
}

LS_SIMD_CLONES void narrow_bf16(const float* in, std::int64_t n, bf16* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const auto u = std::bit_cast<std::uint32_t>(in[i]);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t nan = (u >> 16) | 0x40u;
    y[i].bits = static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
}

LS_SIMD_CLONES void narrow_f16(const float* in, std::int64_t n, f16* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const auto u = std::bit_cast<std::uint32_t>(in[i]);
    const std::uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    const std::uint32_t normal =
        (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // Adding 0.5 makes the adder round to multiples of 2^-24, the step of subnormals.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    // Selects with masks, because the compiler turns conditions into branches.
    const std::uint32_t small = 0u - static_cast<std::uint32_t>(magnitude < 0x38800000u);
    const std::uint32_t large = 0u - static_cast<std::uint32_t>(magnitude >= 0x477ff000u);
    const std::uint32_t nan = 0u - static_cast<std::uint32_t>(magnitude > 0x7f800000u);
    const std::uint32_t finite = (subnormal & small) | (normal & ~small);
    const std::uint32_t special = 0x7c00u | (nan & 0x0200u);
    y[i].bits = static_cast<std::uint16_t>(sign | (finite & ~large) | (special & large));
  }
}

}  // namespace

void widen(const ConstView& x, std::int64_t begin, std::int64_t n, float* out) {
  switch (x.dtype()) {
    case DType::kF32:
      std::copy_n(x.as<float>() + begin, n, out);
      return;
    case DType::kBF16:
      return widen_bf16(x.as<bf16>() + begin, n, out);
    case DType::kF16:
      return widen_f16(x.as<f16>() + begin, n, out);
    default:
      LS_CHECK(false, "no weight can be {}", name_of(x.dtype()));
  }
}

void narrow(const float* in, std::int64_t n, const View& y, std::int64_t begin) {
  switch (y.dtype()) {
    case DType::kF32:
      std::copy_n(in, n, y.as<float>() + begin);
      return;
    case DType::kBF16:
      return narrow_bf16(in, n, y.as<bf16>() + begin);
    case DType::kF16:
      return narrow_f16(in, n, y.as<f16>() + begin);
    default:
      LS_CHECK(false, "no weight can be {}", name_of(y.dtype()));
  }
}

void widen_all(const ConstView& x, float* out) {
  const std::int64_t n = x.elements();
  parallel_for(pieces_of(n), [&](std::int64_t piece) {
    const std::int64_t begin = piece * kPiece;
    widen(x, begin, std::min(kPiece, n - begin), out + begin);
  });
}

}  // namespace longstride::ops::cpu
