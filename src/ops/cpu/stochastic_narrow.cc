#include "ops/cpu/stochastic_narrow.h"

#include <algorithm>
#include <bit>

#include "ops/cpu/simd_math.h"
#include "tensor/stochastic_weight.h"

namespace longstride::ops::cpu {
namespace {

// Elements of one row, from its place `place` on.
LS_SIMD_CLONES void round_part(const float* in, std::int64_t n, RowRounding row,
                               std::uint32_t place, bf16* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    out[i].bits = stochastic_bf16(std::bit_cast<std::uint32_t>(in[i]),
                                  row.bits_of(place + static_cast<std::uint32_t>(i)));
}

void round_part(const float* in, std::int64_t n, RowRounding row, std::uint32_t place, f16* out) {
  for (std::int64_t i = 0; i < n; ++i)
    out[i].bits = stochastic_f16(std::bit_cast<std::uint32_t>(in[i]),
                                 row.bits_of(place + static_cast<std::uint32_t>(i)));
}

template <class E>
void round_all(const float* in, std::int64_t n, std::uint64_t key, std::int64_t first, E* out) {
  for (std::int64_t i = 0; i < n;) {
    const std::uint32_t place = place_in_row(first + i);
    const std::int64_t part = std::min(n - i, kRoundingRow - place);
    round_part(in + i, part, element_row(key, first + i), place, out + i);
    i += part;
  }
}

}  // namespace

void narrow_stochastically(const float* in, std::int64_t n, const View& y, std::int64_t begin,
                           std::uint64_t key, std::int64_t first) {
  if (y.dtype() == DType::kF16) return round_all(in, n, key, first, y.as<f16>() + begin);
  round_all(in, n, key, first, y.as<bf16>() + begin);
}

}  // namespace longstride::ops::cpu
