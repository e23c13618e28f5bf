// Stochastic rounding of updated weights (see stochastic_round.h). The random bits are a function
// of a key, derived from seed, update and parameter, and of the element's number in the parameter.
#pragma once

#include "tensor/stochastic_round.h"

namespace longstride {

// Elements are numbered in rows of this many, each with a RowRounding of its own.
inline constexpr std::int64_t kRoundingRow = 256;

constexpr RowRounding element_row(std::uint64_t key, std::int64_t element) {
  return {key, element / kRoundingRow};
}
constexpr std::uint32_t place_in_row(std::int64_t element) {
  return static_cast<std::uint32_t>(element % kRoundingRow);
}

// The key of one parameter in one update. The first number keeps it apart from the keys of gradient
// pages, which begin with a step's number.
constexpr std::uint64_t weight_rounding_key(std::uint64_t seed, std::int64_t update,
                                            std::int64_t parameter) {
  return mixed(mixed(mixed(seed, -2), update), parameter);
}

// As stochastic_bf16, for F16. Below 2^-14, where more than 16 bits are dropped, the expected value
// is exact to 2^-17 of the spacing. From 65536 on the result is infinity.
constexpr std::uint16_t stochastic_f16(std::uint32_t f32, std::uint32_t random) {
  const auto sign = static_cast<std::uint16_t>((f32 >> 16) & 0x8000u);
  const std::uint32_t magnitude = f32 & 0x7fffffffu;
  std::uint32_t rounded = 0;
  if (magnitude > 0x7f800000u) {
    rounded = 0x7e00u;
  } else if (magnitude >= 0x47800000u) {
    rounded = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {
    const std::uint32_t added = magnitude < 0x477fe000u ? random >> 3 : 0u;
    rounded = (magnitude + added - 0x38000000u) >> 13;
  } else {
    const std::uint32_t exponent = magnitude >> 23 == 0 ? 1 : magnitude >> 23;
    const std::uint32_t shift = 126 - exponent;  // at least 14
    const std::uint64_t mantissa =
        (magnitude & 0x7fffffu) | (magnitude >> 23 == 0 ? 0u : 0x800000u);
    if (shift <= 41) {  // beyond, even the largest addition leaves zero
      const std::uint64_t added =
          shift <= 16 ? random >> (16 - shift) : (std::uint64_t{2 * random + 1}) << (shift - 17);
      rounded = static_cast<std::uint32_t>((mantissa + added) >> shift);
    }
  }
  return static_cast<std::uint16_t>(sign | rounded);
}

}  // namespace longstride
