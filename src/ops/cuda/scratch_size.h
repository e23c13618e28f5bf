// Scratch is F32 and divided into parts that begin at multiples of 256 bytes.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace longstride::ops::cuda {

// F32 elements of a part that holds `elements` of type t.
constexpr std::int64_t floats_for(std::int64_t elements, DType t) {
  return (elements * size_of(t) + 255) / 256 * 64;
}

}  // namespace longstride::ops::cuda
