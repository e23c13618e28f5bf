// Shared parts of the two passes of page scores on the matrix units. A warp keeps kM blocks of 16
// rows of one operand in registers, the other streams through shared memory in tiles. In the first
// pass rows of q stay, in the second the means.
//   kC head size of a kernel: C or the next larger one   kS means of a page
//   kParts parts of a row of q, whose products are added
#pragma once

#include "ops/cuda/attention_tiles.cuh"
#include "ops/cuda/page_scores.h"

namespace longstride::ops::cuda {

// What the second pass needs of a row, see PageScoresWork::stats.
__device__ __forceinline__ float2 weight_stats(float reference, float sum, int power) {
  float inverse = 1.0f / sum;
  for (int p = 1; p < power; p *= 2) inverse *= inverse;
  return make_float2(reference * static_cast<float>(power), inverse);
}

struct SourceRow {
  const bf16* from;  // valid memory, even if not present
  bool present;
};

// Threads [0, kThreads) copy kRows rows of C elements into a tile; row_at(row) is a SourceRow.
// Absent rows and columns from C on become zeros.
template <class Layout, int kRows, int kThreads, class RowAt>
__device__ __forceinline__ void copy_score_rows(std::uint32_t to, int thread, int C,
                                                const RowAt& row_at) {
  constexpr int kPieces = Layout::kPieces, kDown = kThreads / kPieces;
  static_assert(kThreads % kPieces == 0 && kRows % kDown == 0);
  const int piece = thread % kPieces;
  const bool inside = piece * 8 < C;
#pragma unroll 4
  for (int i = 0; i < kRows / kDown; ++i) {
    const int row = thread / kPieces + i * kDown;
    const SourceRow source = row_at(row);
    copy_16_async(to + static_cast<std::uint32_t>(Layout::offset(row, piece)),
                  source.from + (inside ? piece * 8 : 0), source.present && inside);
  }
}

// Rows of q of one KV head.
struct QueryRows {
  const bf16* q;
  std::int64_t query_stride;
  int per_query, C;
  std::uint32_t reciprocal;  // of per_query, see PageScoresWork

  __device__ __forceinline__ QueryRows(const PageScoresWork& w, int kv_head)
      : q(static_cast<const bf16*>(w.q) + kv_head * w.head_stride),
        query_stride(w.query_stride),
        per_query(w.per_query),
        C(w.C),
        reciprocal(w.reciprocal) {}

  __device__ __forceinline__ int query_of(int row) const {
    return per_query == 1 ? row
                          : static_cast<int>(__umulhi(static_cast<std::uint32_t>(row), reciprocal));
  }
  __device__ __forceinline__ int head_of(int row) const { return row - query_of(row) * per_query; }
  __device__ __forceinline__ const bf16* at(int row) const {
    return q + query_of(row) * query_stride + head_of(row) * C;
  }
};

// Threads [0, kRows) copy the stats of the rows from `first` on. Those from `end` on are 0, and
// with them their weights.
template <int kRows>
__device__ __forceinline__ void copy_stats(const PageScoresWork& w, int kv_head, int first, int end,
                                           int thread, std::uint32_t to) {
  if (thread >= kRows) return;
  const bool present = first + thread < end;
  copy_8_async(to + thread * 8,
               w.stats + std::int64_t{kv_head} * w.R + (present ? first + thread : first), present);
}

// The mean s of a candidate for one KV head. Means that do not count are replaced by the page's
// first one that does, which leaves the best of them as it is.
template <int kS>
__device__ __forceinline__ const bf16* mean_at(const PageScoresWork& w, int kv_head, int page,
                                               int s) {
  if (kS > 1 && page == 0) s = max(s, w.hidden);
  return static_cast<const bf16*>(w.means) + ((std::int64_t{page} * kS + s) * w.K + kv_head) * w.C;
}

template <int kC, int kM>
__device__ __forceinline__ void load_rows(std::uint32_t from, int lane_offset,
                                          Fragment (&rows)[kM][kC / 16]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int k = 0; k < kC / 16; ++k)
      rows[m][k] =
          load_fragment(from + m * Tile<kC>::kBlockBytes + Tile<kC>::in_columns(lane_offset, k));
}

// s = products of the warp's rows with 8 kN rows of a tile, summed over the parts of either; parts
// of the tile are part_bytes apart.
template <int kC, int kRightParts, int kLeftParts, int kM, int kN>
__device__ __forceinline__ void sum_products(const Fragment (&left)[kLeftParts][kM][kC / 16],
                                             std::uint32_t right, int part_bytes, int lane_offset,
                                             float (&s)[kM][kN][4]) {
  clear(s);
#pragma unroll
  for (int k = 0; k < kC / 16; ++k)
#pragma unroll
    for (int part = 0; part < kRightParts; ++part)
#pragma unroll
      for (int n = 0; n < kN / 2; ++n) {
        const Fragment b = load_fragment(right + part * part_bytes + n * Tile<kC>::kBlockBytes +
                                         Tile<kC>::in_columns(lane_offset, k));
#pragma unroll
        for (int i = 0; i < kLeftParts; ++i)
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            multiply_add(s[m][2 * n], left[i][m][k], b.quarters[0], b.quarters[2]);
            multiply_add(s[m][2 * n + 1], left[i][m][k], b.quarters[1], b.quarters[3]);
          }
      }
}

// Calls f(kC, kS, kParts) with integral constants.
template <class F>
void dispatch_page_scores(int head_size, int means, bool sums, const F& f) {
  const auto with_means = [&](auto c) {
    const auto with_parts = [&](auto s) {
      if (sums)
        f(c, s, std::integral_constant<int, kSumParts>{});
      else
        f(c, s, std::integral_constant<int, 1>{});
    };
    if (means == 1)
      with_parts(std::integral_constant<int, 1>{});
    else if (means == 2)
      with_parts(std::integral_constant<int, 2>{});
    else
      with_parts(std::integral_constant<int, 4>{});
  };
  if (head_size <= 64)
    with_means(std::integral_constant<int, 64>{});
  else if (head_size <= 128)
    with_means(std::integral_constant<int, 128>{});
  else
    with_means(std::integral_constant<int, 256>{});
}

}  // namespace longstride::ops::cuda
