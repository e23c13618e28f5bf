// K/V pages and their gradients in 8 bits. A coded page holds the codes of its P tokens, laid out
// as the elements of a wide page ([P][2][K][C], tensor/pages_view.h) with a byte each, and behind
// them the scales of its rows, [P][2][K] in BF16: one row is one token's key or value of one KV
// head. A page of keys and values is centred: behind the scales it has its centres, [2][K][C] in
// BF16, the means of its tokens. Keys have elements that are large in all tokens (a bias does
// that): the scales of centred rows need not span them.
//
// An element is code * scale, plus its centre. Codes are integers from -127 to 127 (kI8), or E4M3
// numbers (kF8E4M3: 4 bits of exponent, 3 of mantissa, up to 448, no infinity). The scale is the
// smallest BF16 that brings the row's largest magnitude into that range. Products of a code and a
// scale are exact in F32. A page of zero bytes is a page of zeros.
//
// A row with an element that is not finite gets the scale NaN, and is all NaN when read; its other
// rows are not affected, because a mean that is not finite is no centre. Rows whose
// largest magnitude is below kLeastRow become zero: the inverse of their scale would overflow. As
// the scale is rounded up, the largest element may be read as one by 2^-7 larger: infinity, if F32
// has no such number. So sums that are coded again and again must be rounded stochastically: to
// nearest, their largest elements would grow.
//
// The same bits on every device: each operation in F32 rounds once, and none can be fused with the
// next. constexpr, for the host and for kernels.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace longstride {

constexpr bool is_page_code(DType t) { return t == DType::kI8 || t == DType::kF8E4M3; }

// The types of a layer's pages: of keys and values, and of their gradients.
struct PageTypes {
  DType kv = DType::kF32, gradients = DType::kF32;
  constexpr DType of(bool which_gradients) const { return which_gradients ? gradients : kv; }
  bool operator==(const PageTypes&) const = default;
};

// Bytes of a page of `tokens` tokens with `kv_heads` heads of `head_size`: of a coded one, centred
// or not, or in any other type.
constexpr std::int64_t page_bytes_of(DType t, std::int64_t tokens, std::int64_t kv_heads,
                                     std::int64_t head_size, bool centred = false) {
  constexpr auto kBf16 = static_cast<std::int64_t>(sizeof(bf16));
  const std::int64_t rows = 2 * tokens * kv_heads;
  if (!is_page_code(t)) return rows * head_size * size_of(t);
  return rows * (head_size + kBf16) + (centred ? 2 * kv_heads * head_size * kBf16 : 0);
}

// The centre of elements whose sum over that many tokens is `sum`, added up in F32 in their order.
// Means that are not finite, or nearly so, give 0.
constexpr bf16 centre_of(float sum, float tokens) {
  constexpr float kMost = 0x1p126f;
  const float mean = sum / tokens;
  return mean < kMost && mean > -kMost ? to_bf16(mean) : bf16{0};
}

constexpr float kLeastRow = 0x1p-100f;

constexpr float code_limit(DType t) { return t == DType::kI8 ? 127.0f : 448.0f; }

// The scale of a row whose largest magnitude has the bits `most` of a positive F32. Compared as
// integers, NaN is larger than infinity, and infinity than every number: so `most` is the maximum
// of the magnitudes' bits.
constexpr bf16 row_scale(DType t, std::uint32_t most) {
  if (most >= 0x7f800000u) return {0x7fc0};
  const float magnitude = std::bit_cast<float>(most);
  if (magnitude < kLeastRow) return {0};
  // Rounded down, the quotient is the scale sought or up to two steps below it.
  const auto quotient = std::bit_cast<std::uint32_t>(magnitude * (1.0f / code_limit(t)));
  bf16 scale{static_cast<std::uint16_t>(quotient >> 16)};
  for (int step = 0; step < 2; ++step)
    if (to_float(scale) * code_limit(t) < magnitude) ++scale.bits;  // the product is exact
  return scale;
}

// What elements are multiplied by before they are coded; 0 for a scale of zero or NaN.
constexpr float inverse_scale(bf16 scale) {
  const float value = to_float(scale);
  return value > 0.0f ? 1.0f / value : 0.0f;
}

// An element as nearest_code and random_code take it. Codes of a row whose scale is zero or NaN are
// 0: the sign of a product with NaN would depend on the device.
constexpr float scaled_element(float element, float inverse) {
  return inverse > 0.0f ? element * inverse : 0.0f;
}

namespace page_code_detail {

constexpr std::uint32_t kLeastExponent = 121;  // of normal E4M3 numbers, in F32: 2^-6
constexpr float kE4M3Least = 0x1p-6f;          // below it, codes are multiples of 2^-9

// The magnitude of `scaled`, at most the code's limit. As it stands between the product that made
// `scaled` and the sums below, these cannot be fused with it.
constexpr float limited(DType t, std::uint32_t bits) {
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  return magnitude < code_limit(t) ? magnitude : code_limit(t);
}

constexpr std::uint8_t with_sign(DType t, std::uint32_t bits, std::uint32_t code) {
  if (t == DType::kI8) return static_cast<std::uint8_t>(bits >> 31 != 0 ? 0u - code : code);
  return static_cast<std::uint8_t>(code | (bits >> 31 << 7));
}

}  // namespace page_code_detail

// The code of a scaled_element, to nearest (ties to even). A sum with a large power of two rounds
// to multiples of the last place of that.
constexpr std::uint8_t nearest_code(DType t, float scaled) {
  namespace d = page_code_detail;
  const auto bits = std::bit_cast<std::uint32_t>(scaled);
  const float magnitude = d::limited(t, bits);
  if (t == DType::kI8)
    return d::with_sign(t, bits, std::bit_cast<std::uint32_t>(magnitude + 0x1p23f) & 0xffu);
  const std::uint32_t own = std::bit_cast<std::uint32_t>(magnitude) >> 23,
                      exponent = own > d::kLeastExponent ? own : d::kLeastExponent,
                      power = (exponent + 20) << 23;  // 2^23 steps of 2^-3
  const std::uint32_t steps =
      std::bit_cast<std::uint32_t>(magnitude + std::bit_cast<float>(power)) - power;
  // Of the 8 to 16 steps of a normal number, 8 count as an exponent.
  return d::with_sign(t, bits, ((exponent - d::kLeastExponent) << 3) + steps);
}

// The same, rounded stochastically by 16 random bits (tensor/stochastic_round.h): up if these and
// what would be cut off make a whole step. The expected value is `scaled`.
constexpr std::uint8_t random_code(DType t, float scaled, std::uint32_t random) {
  namespace d = page_code_detail;
  const auto bits = std::bit_cast<std::uint32_t>(scaled);
  const float magnitude = d::limited(t, bits);
  if (t == DType::kI8 || magnitude < d::kE4M3Least) {
    const float steps = magnitude * (t == DType::kI8 ? 0x1p16f : 0x1p25f);  // exact
    return d::with_sign(t, bits, (static_cast<std::uint32_t>(steps) + random) >> 16);
  }
  const std::uint32_t sum = std::bit_cast<std::uint32_t>(magnitude) + (random << 4);
  return d::with_sign(t, bits, (sum >> 20) - ((d::kLeastExponent - 1) << 3));
}

// The number that a code stands for, before its scale.
constexpr float code_value(DType t, std::uint8_t code) {
  if (t == DType::kI8) return static_cast<float>(static_cast<std::int8_t>(code));
  const std::uint32_t sign = std::uint32_t{code} >> 7 << 31, magnitude = code & 0x7fu;
  if (magnitude < 8u)
    return std::bit_cast<float>(
        sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  return std::bit_cast<float>(sign | ((magnitude + (120u << 3)) << 20));
}

}  // namespace longstride
