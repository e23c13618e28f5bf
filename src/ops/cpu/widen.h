// Converts runs of elements between stored types (F32, BF16, F16) and float. Single-threaded unless
// stated otherwise; vectorised.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace longstride::ops::cpu {

// out[i] = the value of element (begin + i) of `x`, i in [0, n).
void widen(const ConstView& x, std::int64_t begin, std::int64_t n, float* out);
// Element (begin + i) of `y` = in[i], rounded to nearest even.
void narrow(const float* in, std::int64_t n, const View& y, std::int64_t begin);

// All elements of `x`, over the thread pool.
void widen_all(const ConstView& x, float* out);

// Elementwise work is split into pieces of this many elements.
constexpr std::int64_t kPiece = 16384;

constexpr std::int64_t pieces_of(std::int64_t n, std::int64_t piece = kPiece) {
  return (n + piece - 1) / piece;
}

}  // namespace longstride::ops::cpu
