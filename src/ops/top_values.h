// The largest of n non-negative values, without memory: a radix search for the smallest value that
// belongs to them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace longstride::ops {

// Calls take(i), ascending, for the `count` largest of value(0), ..., value(n - 1); of equal values
// the first ones. Values are floats and not negative, so that their bits have their order.
template <class Value, class Take>
void top_values(std::int64_t n, std::int64_t count, const Value& value, const Take& take) {
  if (count >= n) {
    for (std::int64_t i = 0; i < n; ++i) take(i);
    return;
  }
  if (count <= 0) return;
  const auto key = [&](std::int64_t i) { return std::bit_cast<std::uint32_t>(value(i)); };
  std::uint32_t least = 0;  // the high bits found so far
  std::int64_t left = count;
  for (int shift = 24; shift >= 0; shift -= 8) {
    std::array<std::int64_t, 256> histogram{};
    for (std::int64_t i = 0; i < n; ++i)
      if (const std::uint32_t k = key(i); shift == 24 || k >> (shift + 8) == least)
        ++histogram[k >> shift & 255];
    std::uint32_t digit = 255;
    while (histogram[digit] < left) left -= histogram[digit--];
    least = least << 8 | digit;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t k = key(i);
    if (k > least || (k == least && left-- > 0)) take(i);
  }
}

}  // namespace longstride::ops
