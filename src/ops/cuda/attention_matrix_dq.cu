// Gradient of queries on the matrix units: a block owns a tile of queries of one head and walks the
// keys that the tile sees, as the forward pass does.
//   kRows queries of a tile, kM blocks of 16 in each warp   kKeys keys of a tile
#include "ops/cuda/attention_matrix_backward.cuh"

namespace longstride::ops::cuda {
namespace {

template <int kHeadSize>
struct DqTiles {
  static constexpr int kC = kHeadSize, kM = kC <= 128 ? 2 : 1;
  static constexpr int kKeys = kC <= 64 ? 64 : kC <= 128 ? 32 : 16;
  static constexpr int kWarpRows = kM * 16, kRows = kAttentionWarps * kWarpRows;
  // Shared memory: q, dout, two stages of (keys, values), two of positions, first.
  static constexpr int kQueryBytes = kRows * Tile<kC>::kRowBytes;
  static constexpr int kKeyBytes = kKeys * Tile<kC>::kRowBytes, kStageBytes = 2 * kKeyBytes;
  static constexpr int kStages = 2 * kQueryBytes, kPositions = kStages + 2 * kStageBytes,
                       kFirst = kPositions + 2 * kKeys * 4, kBytes = kFirst + kRows * 4;
};

template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads, 2) dq_kernel(MatrixBackward a, bf16* dq_THC) {
  constexpr int kC = Tiles::kC, kM = Tiles::kM, kKeys = Tiles::kKeys;
  const AttentionSizes& z = a.sizes;
  const int head = static_cast<int>(blockIdx.x) % z.H;
  const int tiles = (z.P + Tiles::kRows - 1) / Tiles::kRows;
  // Heads and tiles in the order of the forward pass.
  const int tile = static_cast<int>((gridDim.x - 1 - blockIdx.x) / z.H);
  const QueryTile query = QueryTile::of(z, tile / tiles, tile % tiles, Tiles::kRows);
  if (query.rows <= 0) return;
  const KeyRun run = KeyRun::of(z, a.visits, query);

  std::byte* const shared = dynamic_shared();
  const std::uint32_t q = shared_address(shared), stages = q + Tiles::kStages;
  int* const positions = reinterpret_cast<int*>(shared + Tiles::kPositions);
  int* const first = reinterpret_cast<int*>(shared + Tiles::kFirst);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int lane_offset = Tile<kC>::lane_offset(lane);
  const auto load = [&](int key, int stage) {
    const std::uint32_t k = stages + stage * Tiles::kStageBytes;
    copy_keys_async<kC, kKeys>(z, a.kv, run, key, head / z.group(), k, k + Tiles::kKeyBytes,
                               positions + stage * kKeys);
  };

  const std::int64_t stride = z.query_stride(), query_at = query.first * stride + head * z.C;
  copy_rows_async<kC, Tiles::kRows>(q, query.rows, z.C, a.q_THC + query_at, stride);
  copy_rows_async<kC, Tiles::kRows>(q + Tiles::kQueryBytes, query.rows, z.C, a.dout_THC + query_at,
                                    stride);
  note_first_visible<Tiles::kRows>(a.visits, query, first);
  int key = run.begin / kKeys * kKeys;
  if (key < run.end) load(key, 0);

  const WarpRows own{warp * Tiles::kWarpRows, min((warp + 1) * Tiles::kWarpRows, query.rows)};
  const std::uint32_t own_q = q + own.begin * Tile<kC>::kRowBytes;
  QueryStatistics statistics[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own.begin + m * 16 + half * 8 + lane / 4;
      statistics[m][half] = row < own.end ? a.statistics_HT[head * z.T + query.first + row]
                                          : QueryStatistics{0.0f, 0.0f};
    }
  float dq[kM][kC / 8][4];
  clear(dq);
  for (int stage = 0; key < run.end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the stage is full, and no warp reads the other one any more
    if (key + kKeys < run.end) load(key + kKeys, stage ^ 1);
    const int* at = positions + stage * kKeys;
    if (!own.see_any<kKeys>(at, first)) continue;
    const std::uint32_t k = stages + stage * Tiles::kStageBytes, v = k + Tiles::kKeyBytes;
    Fragment gradients[kM][kKeys / 16];
    {
      float s[kM][kKeys / 8][4], dp[kM][kKeys / 8][4];
      row_products<kC>(own_q, k, lane_offset, s);
      if (!own.see_all<kKeys>(at, first)) mask_scores(at, first, own.begin, s);
      row_products<kC>(own_q + Tiles::kQueryBytes, v, lane_offset, dp);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const QueryStatistics& row = statistics[m][i / 2];
            const float weight =
                exp2_approximate(fmaf(s[m][n][i], z.scale * kLog2E, -row.lse_log2));
            dp[m][n][i] = weight * (dp[m][n][i] - row.delta);
          }
      round_to_fragments(dp, gradients);
    }
    add_weighted_rows<kC>(gradients, k, lane_offset, dq);
  }
  // If no key was seen, copies of q may still be in flight to the rows that the results go through.
  wait_for_copies();
  __syncthreads();

  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) factor[m][0] = factor[m][1] = z.scale;
  store_rows<kC>(dq, factor, shared + own.begin * Tile<kC>::kRowBytes,
                 dq_THC + query_at + own.begin * stride, stride, own.end - own.begin, z.C);
}

}  // namespace

void launch_matrix_dq(cudaStream_t stream, const MatrixBackward& a, bf16* dq_THC) {
  dispatch_head_size(a.sizes.C, [&](auto head_size) {
    using Tiles = DqTiles<decltype(head_size)::value>;
    launch_attention(dq_kernel<Tiles>,
                     a.visits.query_pages * ceil_div(a.sizes.P, Tiles::kRows) * a.sizes.H,
                     Tiles::kBytes, stream, a, dq_THC);
  });
}

}  // namespace longstride::ops::cuda
