// Between neighbouring values of a quantization table: a value's code is the number of bounds below
// it.
#pragma once

#include <array>
#include <cstddef>

#include "tensor/block_formats.h"
#include "tensor/dynamic_code.h"

namespace longstride::ops {

template <std::size_t N>
constexpr std::array<float, N - 1> bounds_of(const std::array<float, N>& table) {
  std::array<float, N - 1> bounds{};
  for (std::size_t i = 0; i + 1 < N; ++i) bounds[i] = (table[i] + table[i + 1]) / 2;
  return bounds;
}

inline constexpr auto kNf4Bounds = bounds_of(kNf4Table);
inline constexpr auto kDynamicBounds = bounds_of(kDynamicMap);

// A block's values are divided by its largest magnitude, or by this if that is less.
inline constexpr float kLeastScale = 1e-38f;

}  // namespace longstride::ops
