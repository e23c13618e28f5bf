// Single-precision matrix products through OpenBLAS, one thread per call; gemm.h parallelizes.
#pragma once

#include <cstdint>
#include <string>

namespace longstride::ops::cpu {

enum class Trans : std::uint8_t { kNo, kYes };

// Row-major C[m, n] = alpha op(A) op(B) + beta C, where op(A) is [m, k] and op(B) is [k, n]; lda,
// ldb, ldc are the row strides of A, B and C in memory. With beta = 0, C is not read. Thread-safe.
void sgemm(Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
           float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
           float beta, float* c, std::int64_t ldc);

// The library, its version and the CPU core its kernels are for: "OpenBLAS 0.3.21 SkylakeX".
// Part of the numerics record, because other kernels add in another order.
std::string blas_description();

// The best OpenBLAS core type for this CPU: "SkylakeX", "Haswell", or "" to leave the choice to the
// library.
std::string best_blas_core();

}  // namespace longstride::ops::cpu
