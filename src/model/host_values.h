// Floating-point values in host memory as bytes of a dtype (F32, F16, BF16, F64), which need not be
// aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace longstride {

// Rounds each of `values` to `dtype`; `out` must be large enough for all of them.
void store_floats(std::span<const float> values, DType dtype, std::byte* out);

// `out.size()` values from `bytes`.
void load_floats(const std::byte* bytes, DType dtype, std::span<float> out);

// Index of the first of `count` values that is NaN or infinite, or -1.
std::int64_t first_nonfinite(const std::byte* bytes, DType dtype, std::int64_t count);

}  // namespace longstride
