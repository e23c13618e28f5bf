// Sums of 2^score over pages, as the lanes of a warp hold them while it walks the pages.
//   kS means of a page   kM blocks of 16 rows   kN blocks of 8 columns
#pragma once

#include <cmath>

#include "ops/cuda/page_scores_tiles.cuh"

namespace longstride::ops::cuda {

// Row c of a tile of means: columns of the products are placed such that a lane has all means of a
// page. Of 16 columns, lane t has 2t, 2t + 1, 2t + 8 and 2t + 9.
template <int kS>
struct MeanColumn {
  int page, s;
  __device__ __forceinline__ explicit MeanColumn(int c)
      : page(kS < 4 ? c / kS : c / 16 * 4 + c / 2 % 4),
        s(kS < 4 ? c % kS : c % 2 + c / 8 % 2 * 2) {}
};

// A lane's sums over its columns. The reference follows the largest score only when that is far
// above it, which is rare, and the range of a float is wide.
template <int kM, int kS>
struct LaneSums {
  static constexpr float kSlack = 32.0f, kNone = -1e30f;
  float reference[kM][2], sum[kM][2];

  __device__ __forceinline__ LaneSums() {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) reference[m][half] = kNone, sum[m][half] = 0.0f;
  }

  // `pages` of the columns' pages exist.
  template <int kN>
  __device__ __forceinline__ void add(float scale_log2, int pages, const float (&s)[kM][kN][4]) {
    constexpr int kPages = kN * 2 / kS;
    float best[kM][2][kPages];
    bool rises = false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int p = 0; p < kPages; ++p) {
          best[m][half][p] = s[m][p * kS / 2][2 * half + p * kS % 2];
#pragma unroll
          for (int i = p * kS + 1; i < (p + 1) * kS; ++i)
            best[m][half][p] = fmaxf(best[m][half][p], s[m][i / 2][2 * half + i % 2]);
        }
      }
    if (pages < kN * 8 / kS) hide<kPages>(pages, best);
    float top[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        top[m][half] = best[m][half][0];
#pragma unroll
        for (int p = 1; p < kPages; ++p) top[m][half] = fmaxf(top[m][half], best[m][half][p]);
        rises |= fmaf(top[m][half], scale_log2, -reference[m][half]) > kSlack;
      }
    if (__any_sync(0xffffffffu, rises)) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float now = fmaxf(reference[m][half], top[m][half] * scale_log2);
          sum[m][half] *= exp2_approximate(reference[m][half] - now);
          reference[m][half] = now;
        }
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int p = 0; p < kPages; ++p)
          sum[m][half] += exp2_approximate(fmaf(best[m][half][p], scale_log2, -reference[m][half]));
  }

  // Sums of one row over the four lanes that have its columns; the first of them stores.
  __device__ __forceinline__ void store(const PageScoresWork& w, int split, int kv_head, int row,
                                        int m, int half) const {
    const float mine = reference[m][half];
    float common = fmaxf(mine, __shfl_xor_sync(0xffffffffu, mine, 1));
    common = fmaxf(common, __shfl_xor_sync(0xffffffffu, common, 2));
    const float total = lanes_sum<4>(sum[m][half] * exp2_approximate(mine - common));
    if (threadIdx.x % 4 != 0 || row >= w.R) return;
    if (w.splits == 1)
      w.stats[std::int64_t{kv_head} * w.R + row] = weight_stats(common, total, w.power);
    else
      w.parts[(std::int64_t{split} * w.K + kv_head) * w.R + row] = make_float2(common, total);
  }

  template <int kPages>
  static __device__ __forceinline__ void hide(int pages, float (&best)[kM][2][kPages]) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int p = 0; p < kPages; ++p) {
      const int page = kS == 1 ? p / 2 * 8 + 2 * t + p % 2 : p * 4 + t;
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (page >= pages) best[m][half][p] = -INFINITY;
    }
  }
};

}  // namespace longstride::ops::cuda
