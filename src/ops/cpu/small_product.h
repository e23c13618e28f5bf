// Matrix products of the sizes that attention needs: a few hundred rows and columns, where a BLAS
// call spends its time on packing. Without AVX-512 they still go to the BLAS.
#pragma once

#include <cstdint>
#include <string>

namespace longstride::ops::cpu {

// C[m, n] = alpha A B, or C += A B where `accumulate` is set (alpha is 1 then). A is [m, k], or
// stored as [k, m] where `trans_a` is set; B is [k, n]. Row-major, rows ld apart; C overlaps
// nothing. The order of addition depends on the shapes alone.
struct SmallProduct {
  bool trans_a = false, accumulate = false;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1.0f;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
};
void small_product(const SmallProduct& p);

// to[c, r] = from[r, c] for r < rows, c < columns.
void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* to, std::int64_t to_stride);

// "AVX-512" or "BLAS".
std::string small_product_kernels();

}  // namespace longstride::ops::cpu
