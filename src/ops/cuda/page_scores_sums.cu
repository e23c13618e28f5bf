// The first pass of page scores on the matrix units: for every row of q, the sum of 2^score over
// pages, relative to a reference. A block owns some rows of one KV head and walks a part of the
// pages; each lane sums its own columns, and lanes meet at the end.
#include <algorithm>
#include <cmath>

#include "ops/cuda/page_scores_lanes.cuh"

namespace longstride::ops::cuda {
namespace {

template <int kHeadSize, int kMeans, int kPartCount>
struct SumTiles {
  static constexpr int kC = kHeadSize, kS = kMeans, kParts = kPartCount;
  // Rows in registers: 128 of them for most sizes; products take 32.
  static constexpr int kM = kParts == 1 ? (kC <= 128 ? 4 : 2) : (kC <= 64 ? 2 : 1);
  static constexpr int kWarpRows = kM * 16, kRows = kAttentionWarps * kWarpRows;
  static constexpr int kTile = kC <= 128 ? 64 : 32, kTilePages = kTile / kS;
  static constexpr int kN = std::min(8 / kM, kTile / 8);  // columns of 8 at once
  // Shared memory: parts of q, two stages of means.
  static constexpr int kPartBytes = kRows * Tile<kC>::kRowBytes,
                       kStageBytes = kTile * Tile<kC>::kRowBytes, kStages = kParts * kPartBytes,
                       kBytes = kStages + 2 * kStageBytes;
  static constexpr int kBlocks = 2 * kBytes <= 220 * 1024 ? 2 : 1;  // per multiprocessor
};

// Blocks with the same means are adjacent.
template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads, Tiles::kBlocks)
    sums_kernel(const __grid_constant__ PageScoresWork w) {
  constexpr int kC = Tiles::kC, kS = Tiles::kS, kM = Tiles::kM, kN = Tiles::kN;
  const int tiles = (w.R + Tiles::kRows - 1) / Tiles::kRows;
  const int first_row = static_cast<int>(blockIdx.x) % tiles * Tiles::kRows,
            kv_head = static_cast<int>(blockIdx.x) / tiles % w.K,
            split = static_cast<int>(blockIdx.x) / tiles / w.K;
  const int end = min((split + 1) * w.split_pages, w.N);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_row = first_row + warp * Tiles::kWarpRows;

  const std::uint32_t q = shared_address(dynamic_shared()), stages = q + Tiles::kStages,
                      own_q = q + warp * Tiles::kWarpRows * Tile<kC>::kRowBytes;
  const int lane_offset = Tile<kC>::lane_offset(lane);
  const auto load = [&](int page, int stage) {
    copy_score_rows<Tile<kC>, Tiles::kTile, kAttentionThreads>(
        stages + stage * Tiles::kStageBytes, static_cast<int>(computed_anew(threadIdx.x)), w.C,
        [&](int c) {
          const MeanColumn<kS> column(c);
          const bool present = page + column.page < end;
          return SourceRow{mean_at<kS>(w, kv_head, present ? page + column.page : 0, column.s),
                           present};
        });
  };

  const QueryRows rows(w, kv_head);
#pragma unroll
  for (int part = 0; part < Tiles::kParts; ++part)
    copy_score_rows<Tile<kC>, Tiles::kWarpRows, 32>(
        own_q + part * Tiles::kPartBytes, lane, w.C, [&](int row) {
          const bool present = own_row + row < w.R;
          return SourceRow{rows.at(present ? own_row + row : 0) + part * w.C, present};
        });
  int page = split * w.split_pages;
  load(page, 0);
  wait_for_copies();
  __syncwarp();  // a warp copies its own rows
  Fragment left[Tiles::kParts][kM][kC / 16];
#pragma unroll
  for (int part = 0; part < Tiles::kParts; ++part)
    load_rows<kC>(own_q + part * Tiles::kPartBytes, lane_offset, left[part]);

  LaneSums<kM, kS> sums;
  for (int stage = 0; page < end; page += Tiles::kTilePages, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the stage is full, and no warp reads the other one any more
    if (page + Tiles::kTilePages < end) load(page + Tiles::kTilePages, stage ^ 1);
#pragma unroll
    for (int column = 0; column < Tiles::kTile; column += kN * 8) {
      float s[kM][kN][4];
      sum_products<kC, 1>(left, stages + stage * Tiles::kStageBytes + column * Tile<kC>::kRowBytes,
                          0, lane_offset, s);
      sums.add(w.scale_log2, end - page - column / kS, s);
    }
  }

#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      sums.store(w, split, kv_head, own_row + m * 16 + half * 8 + lane / 4, m, half);
}

constexpr int kMergeThreads = 256;
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(int splits, std::int64_t rows, int power, const float2* __restrict__ sums,
                 float2* __restrict__ stats) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kMergeThreads + threadIdx.x;
  if (i >= rows) return;
  float2 parts[kMaxPageSplits];
  float reference = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int split = 0; split < kMaxPageSplits; ++split)
    if (split < splits) {
      parts[split] = sums[split * rows + i];
      reference = fmaxf(reference, parts[split].x);
    }
#pragma unroll
  for (int split = 0; split < kMaxPageSplits; ++split)
    if (split < splits) sum += parts[split].y * exp2_approximate(parts[split].x - reference);
  stats[i] = weight_stats(reference, sum, power);
}

}  // namespace

bool fits_matrix_page_scores(DType t, std::int64_t head_size, std::int64_t means) {
  return t == DType::kBF16 && head_size % 8 == 0 && head_size <= 256 &&
         (means == 1 || means == 2 || means == 4);
}

// At least 8 tiles each: enough blocks for every device, and few that wait for their rows of q.
void choose_page_splits(PageScoresWork& work, int tile_pages) {
  const std::int64_t tiles = ceil_div(work.N, tile_pages),
                     most = std::clamp<std::int64_t>(tiles / 8, 1, kMaxPageSplits),
                     split_tiles = ceil_div(tiles, most);
  work.splits = static_cast<int>(ceil_div(tiles, split_tiles));
  work.split_pages = static_cast<int>(split_tiles * tile_pages);
}

void merge_page_sums(cudaStream_t stream, const PageScoresWork& w) {
  if (w.splits == 1) return;
  const std::int64_t rows = std::int64_t{w.K} * w.R;
  merge_kernel<<<grid_size(ceil_div(rows, kMergeThreads)), kMergeThreads, 0, stream>>>(
      w.splits, rows, w.power, w.parts, w.stats);
  LS_CUDA_LAUNCHED();
}

void matrix_page_sums(cudaStream_t stream, PageScoresWork w, int means, bool sums) {
  dispatch_page_scores(w.C, means, sums, [&](auto head_size, auto s, auto parts) {
    using Tiles = SumTiles<decltype(head_size)::value, decltype(s)::value, decltype(parts)::value>;
    choose_page_splits(w, Tiles::kTilePages);
    launch_attention(sums_kernel<Tiles>, ceil_div(w.R, Tiles::kRows) * w.K * w.splits,
                     Tiles::kBytes, stream, w);
  });
  merge_page_sums(stream, w);
}

}  // namespace longstride::ops::cuda
