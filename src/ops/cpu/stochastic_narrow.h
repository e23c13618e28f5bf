// Stochastic rounding of updated weights, on the CPU (tensor/stochastic_weight.h).
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace longstride::ops::cpu {

// Element (begin + i) of `y`, BF16 or F16, = in[i], i in [0, n), rounded by the bits of element
// (first + i) of a parameter. Single-threaded.
void narrow_stochastically(const float* in, std::int64_t n, const View& y, std::int64_t begin,
                           std::uint64_t key, std::int64_t first);

}  // namespace longstride::ops::cpu
