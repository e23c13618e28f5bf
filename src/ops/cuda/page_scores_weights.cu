// The second pass of page scores on the matrix units: the weights of the pages, summed over the
// rows of a query page. A block owns a query page and some pages, each warp some of their means; it
// walks the KV heads, and for each the rows of q. No sum leaves its lane before the end.
#include "ops/cuda/page_scores_tiles.cuh"

namespace longstride::ops::cuda {
namespace {

template <int kHeadSize, int kMeans, int kPartCount>
struct WeightTiles {
  static constexpr int kC = kHeadSize, kS = kMeans, kParts = kPartCount;
  // Means in registers: 128 of them for most sizes; products take 32.
  static constexpr int kM = kC <= 128 ? 4 : 2, kN = 8 / kM;
  static constexpr int kWarpMeans = kM * 16, kMeansOfBlock = kAttentionWarps * kWarpMeans,
                       kPages = kMeansOfBlock / kS;
  static constexpr int kTile = kC <= 128 && kParts == 1 ? 64 : 32;  // rows of q
  // Shared memory: means, two stages of (parts of q, stats).
  static constexpr int kPartBytes = kTile * Tile<kC>::kRowBytes, kStats = kParts * kPartBytes,
                       kStageBytes = kStats + kTile * 8,
                       kStages = kMeansOfBlock * Tile<kC>::kRowBytes,
                       kBytes = kStages + 2 * kStageBytes;
  static constexpr int kBlocks = 2 * kBytes <= 225 * 1024 ? 2 : 1;  // per multiprocessor
};

// Row r of a block's means: rows of the products are placed such that a lane has all means of a
// page. A lane has every 8th row.
template <int kS>
struct MeanRow {
  int page, s;
  __device__ __forceinline__ explicit MeanRow(int r)
      : page(r / (8 * kS) * 8 + r % 8), s(r / 8 % kS) {}
};

// Blocks with the same rows of q are adjacent.
template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads, Tiles::kBlocks)
    weights_kernel(const __grid_constant__ PageScoresWork w) {
  constexpr int kC = Tiles::kC, kS = Tiles::kS, kM = Tiles::kM, kN = Tiles::kN;
  constexpr int kLanePages = kM * 2 / kS;
  const int page_blocks = (w.N + Tiles::kPages - 1) / Tiles::kPages;
  const int query_page = static_cast<int>(blockIdx.x) / page_blocks;
  const int first_page = static_cast<int>(blockIdx.x) % page_blocks * Tiles::kPages;
  const int first_row = query_page * w.page_rows, end_row = min(first_row + w.page_rows, w.R);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;

  std::byte* const shared = dynamic_shared();
  const std::uint32_t means = shared_address(shared), stages = means + Tiles::kStages,
                      own_means = means + warp * Tiles::kWarpMeans * Tile<kC>::kRowBytes;
  const int lane_offset = Tile<kC>::lane_offset(lane);
  // A warp copies its own means.
  const auto load_means = [&](int kv_head) {
    const int own_page = first_page + warp * (Tiles::kWarpMeans / kS);
    copy_score_rows<Tile<kC>, Tiles::kWarpMeans, 32>(
        own_means, static_cast<int>(computed_anew(threadIdx.x)) % 32, w.C, [&](int row) {
          const MeanRow<kS> mean(row);
          const bool present = own_page + mean.page < w.N;
          return SourceRow{mean_at<kS>(w, kv_head, present ? own_page + mean.page : 0, mean.s),
                           present};
        });
  };
  const auto load_queries = [&](int kv_head, int first, int stage) {
    const std::uint32_t to = stages + stage * Tiles::kStageBytes;
    const int thread = static_cast<int>(computed_anew(threadIdx.x));
    const QueryRows rows(w, kv_head);
#pragma unroll
    for (int part = 0; part < Tiles::kParts; ++part)
      copy_score_rows<Tile<kC>, Tiles::kTile, kAttentionThreads>(
          to + part * Tiles::kPartBytes, thread, w.C, [&](int row) {
            const bool present = first + row < end_row;
            return SourceRow{rows.at(present ? first + row : first) + part * w.C, present};
          });
    copy_stats<Tiles::kTile>(w, kv_head, first, end_row, thread, to + Tiles::kStats);
  };

  const float scale = w.scale_log2 * static_cast<float>(w.power);
  float sum[kLanePages] = {};
  load_means(0);
  load_queries(0, first_row, 0);
  int stage = 0;
  for (int kv_head = 0; kv_head < w.K; ++kv_head) {
    wait_for_copies();
    __syncwarp();
    Fragment left[1][kM][kC / 16];
    load_rows<kC>(own_means, lane_offset, left[0]);
    for (int row = first_row; row < end_row; row += Tiles::kTile, stage ^= 1) {
      wait_for_copies();
      __syncthreads();  // the stage is full, and no warp reads the other one any more
      const bool last = row + Tiles::kTile >= end_row;
      const int next_head = last ? kv_head + 1 : kv_head;
      if (next_head < w.K)
        load_queries(next_head, last ? first_row : row + Tiles::kTile, stage ^ 1);
      if (row == first_row && kv_head + 1 < w.K) load_means(kv_head + 1);
      const std::uint32_t tile = stages + stage * Tiles::kStageBytes;
      const std::byte* const stats =
          shared + Tiles::kStages + stage * Tiles::kStageBytes + Tiles::kStats + lane % 4 * 16;
#pragma unroll 2
      for (int column = 0; column < Tiles::kTile; column += kN * 8) {
        float s[kM][kN][4];
        sum_products<kC, Tiles::kParts>(left, tile + column * Tile<kC>::kRowBytes,
                                        Tiles::kPartBytes, lane_offset, s);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          // (reference, 1 / sum) of rows 2t and 2t + 1.
          const float4 pair = *reinterpret_cast<const float4*>(stats + (column + n * 8) * 8);
          const float reference[2] = {pair.x, pair.z}, inverse[2] = {pair.y, pair.w};
#pragma unroll
          for (int p = 0; p < kLanePages; ++p)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              float best = s[p * kS / 2][n][p * kS % 2 * 2 + i];
#pragma unroll
              for (int j = p * kS + 1; j < (p + 1) * kS; ++j)
                best = fmaxf(best, s[j / 2][n][j % 2 * 2 + i]);
              sum[p] = fmaf(exp2_approximate(fmaf(best, scale, -reference[i])), inverse[i], sum[p]);
            }
        }
      }
    }
  }

#pragma unroll
  for (int p = 0; p < kLanePages; ++p) {
    const float total = lanes_sum<4>(sum[p]);
    const int page = first_page + (warp * kLanePages + p) * 8 + lane / 4;
    if (lane % 4 == 0 && page < w.N) w.scores_QN[query_page * w.scores_stride + page] = total;
  }
}

}  // namespace

void matrix_page_weights(cudaStream_t stream, const PageScoresWork& w, int means, bool sums) {
  dispatch_page_scores(w.C, means, sums, [&](auto head_size, auto s, auto parts) {
    using Tiles =
        WeightTiles<decltype(head_size)::value, decltype(s)::value, decltype(parts)::value>;
    launch_attention(weights_kernel<Tiles>,
                     ceil_div(w.R, w.page_rows) * ceil_div(w.N, Tiles::kPages), Tiles::kBytes,
                     stream, w);
  });
}

}  // namespace longstride::ops::cuda
