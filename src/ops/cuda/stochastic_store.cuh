// Stores updated weights, rounded stochastically (tensor/stochastic_weight.h).
#pragma once

#include "ops/cuda/vector_access.cuh"
#include "tensor/stochastic_weight.h"

namespace longstride::ops::cuda {

template <class W>
__device__ __forceinline__ std::uint32_t rounded_weight(float value, std::uint32_t random) {
  const std::uint32_t bits = __float_as_uint(value);
  return std::is_same_v<W, bf16> ? stochastic_bf16(bits, random) : stochastic_f16(bits, random);
}

// to = values: elements [place, place + N) of a row; `place` is even unless N is 1.
template <int N, class W>
__device__ __forceinline__ void store_stochastically(const float (&values)[N],
                                                     const RowRounding& row, std::uint32_t place,
                                                     W* to) {
  Packed<W, N> rounded;
  if constexpr (N == 1) {
    rounded.units[0] = static_cast<std::uint16_t>(rounded_weight<W>(values[0], row.bits_of(place)));
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const std::uint32_t random = row.bits_of_pair(place / 2 + static_cast<unsigned>(i));
      rounded.units[i] = rounded_weight<W>(values[2 * i], random & 0xffffu) |
                         rounded_weight<W>(values[2 * i + 1], random >> 16) << 16;
    }
  }
  rounded.store(to);
}

}  // namespace longstride::ops::cuda
