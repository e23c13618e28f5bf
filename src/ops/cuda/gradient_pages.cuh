// Stores sums into gradient pages: F32 unchanged, BF16 rounded stochastically.
#pragma once

#include "ops/cuda/vector_access.cuh"
#include "tensor/stochastic_round.h"

namespace longstride::ops::cuda {

// to = sum, elements [element, element + N) of a token's row; `element` is even unless N is 1.
template <int N, class G>
__device__ __forceinline__ void store_gradient(const float (&sum)[N], const RowRounding& row,
                                               unsigned element, G* to) {
  if constexpr (std::is_same_v<G, float>) {
    store_floats<N>(sum, to);
  } else {
    Packed<bf16, N> rounded;
    if constexpr (N == 1) {
      rounded.units[0] = stochastic_bf16(__float_as_uint(sum[0]), row.bits_of(element));
    } else {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        const std::uint32_t random = row.bits_of_pair(element / 2 + static_cast<unsigned>(i));
        rounded.units[i] =
            std::uint32_t{stochastic_bf16(__float_as_uint(sum[2 * i]), random & 0xffffu)} |
            std::uint32_t{stochastic_bf16(__float_as_uint(sum[2 * i + 1]), random >> 16)} << 16;
      }
    }
    rounded.store(to);
  }
}

}  // namespace longstride::ops::cuda
