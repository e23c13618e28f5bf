#include "ops/cpu/small_product.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cpu/blas.h"

#if defined(__x86_64__)
// g++ 12 mistakes the placeholders inside these intrinsics for uninitialized variables.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#define LS_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq")))
#endif

namespace longstride::ops::cpu {
namespace {

#if defined(__x86_64__)

bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  return has;
}

// R rows by W vectors of 16 columns, the last one masked: R * W sums live in registers. Element (i,
// k) of A is a[i * row + k * step].
template <int R, int W>
LS_AVX512 void block(const SmallProduct& p, const float* a, std::int64_t row, std::int64_t step,
                     const float* b, float* c, __mmask16 last) {
  __m512 sum[R][W];
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < W; ++j) sum[i][j] = _mm512_setzero_ps();
  for (std::int64_t k = 0; k < p.k; ++k) {
    __m512 columns[W];
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < W; ++j)
      columns[j] =
          j + 1 < W ? _mm512_loadu_ps(b + j * 16) : _mm512_maskz_loadu_ps(last, b + j * 16);
#pragma GCC unroll 6
    for (int i = 0; i < R; ++i) {
      const __m512 x = _mm512_set1_ps(a[i * row]);
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < W; ++j) sum[i][j] = _mm512_fmadd_ps(x, columns[j], sum[i][j]);
    }
    a += step;
    b += p.ldb;
  }
  const __m512 alpha = _mm512_set1_ps(p.alpha);
#pragma GCC unroll 6
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < W; ++j) {
      float* to = c + i * p.ldc + j * 16;
      const __mmask16 mask = j + 1 < W ? static_cast<__mmask16>(0xffff) : last;
      const __m512 value = p.accumulate ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum[i][j])
                                        : _mm512_mul_ps(alpha, sum[i][j]);
      _mm512_mask_storeu_ps(to, mask, value);
    }
  }
}

// All rows of a strip of W vectors: the strip of B stays in the first-level cache.
template <int W>
LS_AVX512 void strip(const SmallProduct& p, const float* b, float* c, __mmask16 last) {
  const std::int64_t row = p.trans_a ? 1 : p.lda, step = p.trans_a ? p.lda : 1;
  std::int64_t i = 0;
  for (; i + 6 <= p.m; i += 6) block<6, W>(p, p.a + i * row, row, step, b, c + i * p.ldc, last);
  const float* a = p.a + i * row;
  c += i * p.ldc;
  switch (p.m - i) {
    case 1:
      return block<1, W>(p, a, row, step, b, c, last);
    case 2:
      return block<2, W>(p, a, row, step, b, c, last);
    case 3:
      return block<3, W>(p, a, row, step, b, c, last);
    case 4:
      return block<4, W>(p, a, row, step, b, c, last);
    case 5:
      return block<5, W>(p, a, row, step, b, c, last);
    default:
      return;
  }
}

LS_AVX512 void avx512_product(const SmallProduct& p) {
  for (std::int64_t j = 0; j < p.n; j += 64) {
    const std::int64_t columns = std::min<std::int64_t>(64, p.n - j), rest = (columns - 1) % 16 + 1;
    const auto last = static_cast<__mmask16>((1u << rest) - 1u);
    switch ((columns + 15) / 16) {
      case 1:
        strip<1>(p, p.b + j, p.c + j, last);
        break;
      case 2:
        strip<2>(p, p.b + j, p.c + j, last);
        break;
      case 3:
        strip<3>(p, p.b + j, p.c + j, last);
        break;
      default:
        strip<4>(p, p.b + j, p.c + j, last);
    }
  }
}

// Transposes a tile of 16 by 16 in registers: exchanges pairs, fours, then halves and quarters.
LS_AVX512 void transpose_tile(const float* from, std::int64_t from_stride, float* to,
                              std::int64_t to_stride) {
  __m512 r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]),
                  c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  // r[4 q + k] holds in its quarter h the elements (rows 4 q ... 4 q + 3) of column 4 h + k.
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const __m512 low = _mm512_shuffle_f32x4(r[k], r[4 + k], 0x44),
                 high = _mm512_shuffle_f32x4(r[k], r[4 + k], 0xee),
                 low2 = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0x44),
                 high2 = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0xee);
    t[k] = _mm512_shuffle_f32x4(low, low2, 0x88);
    t[4 + k] = _mm512_shuffle_f32x4(low, low2, 0xdd);
    t[8 + k] = _mm512_shuffle_f32x4(high, high2, 0x88);
    t[12 + k] = _mm512_shuffle_f32x4(high, high2, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_ps(to + i * to_stride, t[i]);
}

#else

bool has_avx512() { return false; }
void avx512_product(const SmallProduct&) {}
void transpose_tile(const float*, std::int64_t, float*, std::int64_t) {}

#endif

}  // namespace

void small_product(const SmallProduct& p) {
  LS_CHECK(!p.accumulate || p.alpha == 1.0f, "alpha {}", p.alpha);
  if (p.m == 0 || p.n == 0) return;
  if (has_avx512()) return avx512_product(p);
  sgemm(p.trans_a ? Trans::kYes : Trans::kNo, Trans::kNo, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b,
        p.ldb, p.accumulate ? 1.0f : 0.0f, p.c, p.ldc);
}

void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               float* to, std::int64_t to_stride) {
  const std::int64_t whole_rows = has_avx512() ? rows / 16 * 16 : 0,
                     whole_columns = has_avx512() ? columns / 16 * 16 : 0;
  for (std::int64_t r = 0; r < whole_rows; r += 16)
    for (std::int64_t c = 0; c < whole_columns; c += 16)
      transpose_tile(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      to[c * to_stride + r] = from[r * from_stride + c];
}

std::string small_product_kernels() { return has_avx512() ? "AVX-512" : "BLAS"; }

}  // namespace longstride::ops::cpu
