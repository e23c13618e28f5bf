// Attention forward on the matrix units: a block owns a tile of queries of one head, each warp some
// of its rows, and walks the keys that the tile sees with an online softmax (running maximum and
// sum). The next keys are copied while the current ones are processed.
//   kRows queries of a tile, kM blocks of 16 in each warp   kKeys keys of a tile
#include <cmath>

#include "ops/cuda/attention_matrix.h"
#include "ops/cuda/attention_tiles.cuh"

namespace longstride::ops::cuda {
namespace {

template <int kHeadSize>
struct ForwardTiles {
  static constexpr int kC = kHeadSize, kM = kC <= 128 ? 2 : 1, kKeys = kC <= 128 ? 64 : 32;
  static constexpr int kWarpRows = kM * 16, kRows = kAttentionWarps * kWarpRows;
  // Shared memory: q, two stages of (keys, values), two of positions, first.
  static constexpr int kKeyBytes = kKeys * Tile<kC>::kRowBytes, kStageBytes = 2 * kKeyBytes;
  static constexpr int kStages = kRows * Tile<kC>::kRowBytes,
                       kPositions = kStages + 2 * kStageBytes, kFirst = kPositions + 2 * kKeys * 4,
                       kBytes = kFirst + kRows * 4;
};

// The largest product and the sum of weights of a lane's rows; the sum is over its own columns.
template <int kM>
struct RunningSoftmax {
  float top[kM][2], sum[kM][2];

  __device__ __forceinline__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kM; ++m) top[m][0] = top[m][1] = -INFINITY, sum[m][0] = sum[m][1] = 0.0f;
  }

  // Turns products into weights relative to the new maximum, and rescales earlier sums.
  template <int kN, int kColumns>
  __device__ __forceinline__ void add(float scale_log2, float (&s)[kM][kN][4],
                                      float (&out)[kM][kColumns][4]) {
    float shift[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float maximum = top[m][half];
#pragma unroll
        for (int n = 0; n < kN; ++n)
          maximum = fmaxf(maximum, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
        maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
        // A row that has seen no key yet: any finite shift leaves its weights at 0.
        shift[m][half] = maximum == -INFINITY ? 0.0f : maximum * scale_log2;
        const float shrink = exp2_approximate(fmaf(top[m][half], scale_log2, -shift[m][half]));
        top[m][half] = maximum;
        sum[m][half] *= shrink;
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
          out[m][n][2 * half] *= shrink, out[m][n][2 * half + 1] *= shrink;
      }
      // In the order in which the weights are used next.
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float &low = s[m][n][2 * half], &high = s[m][n][2 * half + 1];
          low = exp2_approximate(fmaf(low, scale_log2, -shift[m][half]));
          high = exp2_approximate(fmaf(high, scale_log2, -shift[m][half]));
          sum[m][half] += low + high;
        }
  }
};

template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    forward_kernel(AttentionSizes z, const bf16* q_THC, DevicePages kv, DeviceVisits visits,
                   bf16* out_THC, float* lse_HT) {
  constexpr int kC = Tiles::kC, kM = Tiles::kM, kKeys = Tiles::kKeys;
  // Heads that share keys are adjacent; tiles of late queries see the most keys and come first.
  const int head = static_cast<int>(blockIdx.x) % z.H,
            tiles = (z.P + Tiles::kRows - 1) / Tiles::kRows;
  const int tile = static_cast<int>((gridDim.x - 1 - blockIdx.x) / z.H);
  const QueryTile query = QueryTile::of(z, tile / tiles, tile % tiles, Tiles::kRows);
  if (query.rows <= 0) return;
  const KeyRun run = KeyRun::of(z, visits, query);

  std::byte* const shared = dynamic_shared();
  const std::uint32_t q = shared_address(shared), stages = q + Tiles::kStages;
  int* const positions = reinterpret_cast<int*>(shared + Tiles::kPositions);
  int* const first = reinterpret_cast<int*>(shared + Tiles::kFirst);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int lane_offset = Tile<kC>::lane_offset(lane);
  const auto load = [&](int key, int stage) {
    const std::uint32_t k = stages + stage * Tiles::kStageBytes;
    copy_keys_async<kC, kKeys>(z, kv, run, key, head / z.group(), k, k + Tiles::kKeyBytes,
                               positions + stage * kKeys);
  };

  const std::int64_t query_at = query.first * z.query_stride() + head * z.C;
  copy_rows_async<kC, Tiles::kRows>(q, query.rows, z.C, q_THC + query_at, z.query_stride());
  note_first_visible<Tiles::kRows>(visits, query, first);
  int key = run.begin / kKeys * kKeys;
  if (key < run.end) load(key, 0);

  const WarpRows own{warp * Tiles::kWarpRows, min((warp + 1) * Tiles::kWarpRows, query.rows)};
  const std::uint32_t own_q = q + own.begin * Tile<kC>::kRowBytes;
  float out[kM][kC / 8][4];
  clear(out);
  RunningSoftmax<kM> softmax;
  for (int stage = 0; key < run.end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the stage is full, and no warp reads the other one any more
    if (key + kKeys < run.end) load(key + kKeys, stage ^ 1);
    const int* at = positions + stage * kKeys;
    if (!own.see_any<kKeys>(at, first)) continue;
    const std::uint32_t k = stages + stage * Tiles::kStageBytes, v = k + Tiles::kKeyBytes;
    Fragment weights[kM][kKeys / 16];
    {
      float s[kM][kKeys / 8][4];
      row_products<kC>(own_q, k, lane_offset, s);
      if (!own.see_all<kKeys>(at, first)) mask_scores(at, first, own.begin, s);
      softmax.add(z.scale * kLog2E, s, out);
      round_to_fragments(s, weights);
    }
    add_weighted_rows<kC>(weights, v, lane_offset, out);
  }
  // If no key was seen, copies of q may still be in flight to the rows that the results go through.
  wait_for_copies();
  __syncthreads();

  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = lanes_sum<4>(softmax.sum[m][half]);
      factor[m][half] = sum > 0.0f ? 1.0f / sum : 0.0f;
      const int row = own.begin + m * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < own.end)
        lse_HT[head * z.T + query.first + row] =
            sum > 0.0f ? fmaf(softmax.top[m][half], z.scale, logf(sum)) : -INFINITY;
    }
  store_rows<kC>(out, factor, shared + own.begin * Tile<kC>::kRowBytes,
                 out_THC + query_at + own.begin * z.query_stride(), z.query_stride(),
                 own.end - own.begin, z.C);
}

}  // namespace

bool fits_matrix_attention(DType compute, std::int64_t head_size) {
  return compute == DType::kBF16 && head_size > 0 && head_size % 8 == 0 && head_size <= 256;
}

void matrix_attention_forward(Stream& stream, const PagedAttentionForward& a) {
  const AttentionSizes z = attention_sizes(a.q_THC, a.kv, a.scale);
  LS_CHECK(aligned({a.out_THC.data()}), "out at {}", a.out_THC.data());
  longstride::cuda::CudaStream& s = longstride::cuda::cuda_stream(stream);
  const DeviceVisits visits = upload_visits(s, a.visits, z.T);
  const DevicePages kv = upload_pages(s, a.kv, a.visits);
  dispatch_head_size(z.C, [&](auto head_size) {
    using Tiles = ForwardTiles<decltype(head_size)::value>;
    launch_attention(forward_kernel<Tiles>,
                     a.visits.query_pages * ceil_div(z.P, Tiles::kRows) * z.H, Tiles::kBytes,
                     s.handle(), z, a.q_THC.as<bf16>(), kv, visits, a.out_THC.as<bf16>(),
                     a.lse_HT.as<float>());
  });
}

}  // namespace longstride::ops::cuda
