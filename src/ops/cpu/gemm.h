// A matrix product, split into fixed blocks of the result: one sgemm call each, on the thread pool.
#pragma once

#include <cstdint>

#include "ops/cpu/blas.h"
#include "tensor/view.h"

namespace longstride::ops::cpu {

// Row-major C[m, n] = scale op(A) op(B) (+ C where `accumulate` is set) (+ bias[n] in every row,
// where it is present). The blocks depend on m and n alone. Must not be called inside parallel_for.
struct Gemm {
  Trans trans_a = Trans::kNo, trans_b = Trans::kNo;
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  ConstView bias{};  // F32, BF16 or F16
  bool accumulate = false;
  float scale = 1.0f;
};
void gemm(const Gemm& g);

}  // namespace longstride::ops::cpu
