// Single-precision matrix products through OpenBLAS, one thread per call; parallelism is ours
// (gemm.h).
#pragma once

#include <cstdint>
#include <string>

namespace longstride::ops::cpu {

enum class Trans : std::uint8_t { kNo, kYes };

// Row-major C[m, n] = alpha op(A) op(B) + beta C, where op(A) is [m, k] and op(B) is [k, n]; lda,
// ldb, ldc are the row lengths of A, B and C as they lie in memory. With beta = 0, C is not read.
// Safe to call from several threads at once.
void sgemm(Trans trans_a, Trans trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
           float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
           float beta, float* c, std::int64_t ldc);

// The library, its version and the CPU core it has kernels chosen for: "OpenBLAS 0.3.21 SkylakeX".
// Part of the numerics record, because other kernels add in another order.
std::string blas_description();

// The best core type of OpenBLAS that this CPU can run: "SkylakeX", "Haswell", or "" where the
// library knows better.
std::string best_blas_core();

}  // namespace longstride::ops::cpu
