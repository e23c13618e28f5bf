// The random choice of dropped elements: a pure function of a key, a token and an element, so that
// forward pass, recomputation and backward pass agree on every device.
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/stochastic_round.h"

namespace longstride {

class DropoutMask {
 public:
  DropoutMask(std::uint64_t key, double rate)
      : key_(key),
        threshold_(static_cast<std::uint32_t>(std::lround(rate * 65536.0))),
        scale_(static_cast<float>(65536.0 / (65536.0 - static_cast<double>(threshold_)))) {}

  // The elements of one token.
  constexpr RowRounding row(std::int64_t token) const { return {key_, token}; }
  // Factor of an element: 0, or more than 1.
  constexpr float factor(const RowRounding& row, std::int64_t element) const {
    return row.bits_of(static_cast<std::uint32_t>(element)) < threshold_ ? 0.0f : scale_;
  }

 private:
  std::uint64_t key_;
  std::uint32_t threshold_;
  float scale_;
};

}  // namespace longstride
