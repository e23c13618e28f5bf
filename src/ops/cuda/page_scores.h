// Scores of pages in two passes over their means. The first finds for every row a reference
// and the sum of 2^(score - reference) over pages; the second adds up the weights of the rows of a
// query page. A row is a query with one head, or summed over the heads of a group (kOomb); a KV
// head has `per_query` rows for each query, adjacent. Scores are in units of log 2.
//   K KV heads   R rows of a KV head   N candidates   S means of a page
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/page_selection.h"

namespace longstride::ops::cuda {

// The first pass may cut the pages into as many parts, whose sums are then merged.
inline constexpr std::int64_t kMaxPageSplits = 8;

struct PageScoresWork {
  int K = 0, R = 0, N = 0, C = 0;
  int per_query = 1, page_rows = 0;  // rows of a query, of a query page
  std::uint32_t reciprocal = 0;      // r / per_query = r * reciprocal >> 32 if per_query > 1
  int hidden = 0;                    // the first means of page 0 that do not count, fewer than S
  int splits = 1, split_pages = 0;
  int power = 1;  // of a weight in a score, a power of 2
  float scale_log2 = 1.0f;
  std::int64_t query_stride = 0, head_stride = 0;  // elements of q from query to query, KV head
  std::int64_t scores_stride = 0;
  const void* q = nullptr;      // row (k, r): q + r / per_query * query_stride + k * head_stride +
                                // r % per_query * C
  const void* means = nullptr;  // [N * S][K][C]
  float2* parts = nullptr;      // [splits][K][R]: reference, sum; unused with one split
  float2* stats = nullptr;      // [K][R]: power * reference, (1 / sum)^power
  float* scores_QN = nullptr;
};

// F32 or BF16, any sizes, slowly: heads are summed as they are read, `heads` of them.
void plain_page_scores(cudaStream_t stream, DType t, const PageScoresWork& work, int heads,
                       int means);

// On the matrix units: BF16, C a multiple of 8 up to 256, S = 1, 2 or 4. A row of q has kSumParts
// parts of C elements if `sums`, which add up to a sum over heads with all bits of an F32.
inline constexpr int kSumParts = 3;
bool fits_matrix_page_scores(DType t, std::int64_t head_size, std::int64_t means);
void matrix_page_sums(cudaStream_t stream, PageScoresWork work, int means, bool sums);
void matrix_page_weights(cudaStream_t stream, const PageScoresWork& work, int means, bool sums);

// The same without parts of rows by Hopper's products of warpgroups; C up to 128.
bool fits_warpgroup_page_scores(DType t, std::int64_t head_size, std::int64_t means);
void warpgroup_page_scores(cudaStream_t stream, PageScoresWork work, int means);

// How the first pass cuts the pages, in tiles of so many; from shapes alone.
void choose_page_splits(PageScoresWork& work, int tile_pages);
// Writes stats from the parts, in their order.
void merge_page_sums(cudaStream_t stream, const PageScoresWork& work);

}  // namespace longstride::ops::cuda
