// Gradients of keys and values on the matrix units: a block owns a tile of keys of one page and one
// KV head, walks the heads of its group and the tiles of queries that see it, in order, and adds
// into the gradient page once.
//   kKeys keys of a block, kM blocks of 16 in each pair of warps   kQueries queries of a tile
//
// Two warps work on the same keys. The first computes the weights and dv, the second the gradients
// of the weights and dk: two products each, of the same shapes. So each holds one accumulator and
// has registers for 32 keys instead of 16, which halves the reads from shared memory. The first
// passes the weights to the second. Products are transposed (keys by queries), so that they can be
// left operands unchanged.
#include <cmath>

#include "ops/cuda/attention_matrix_backward.cuh"
#include "ops/cuda/gradient_pages.cuh"

namespace longstride::ops::cuda {
namespace {

template <int kHeadSize, int kTileQueries>
struct DkvTiles {
  static constexpr int kC = kHeadSize, kQueries = kTileQueries, kM = kC <= 128 ? 2 : 1;
  static constexpr int kPairs = kAttentionWarps / 2, kPairKeys = kM * 16,
                       kKeys = kPairs * kPairKeys;
  // Shared memory: keys, values, two stages of (q, dout), weights of each pair, two stages of
  // (statistics, first visible).
  static constexpr int kKeyBytes = kKeys * Tile<kC>::kRowBytes,
                       kQueryBytes = kQueries * Tile<kC>::kRowBytes, kStageBytes = 2 * kQueryBytes;
  static constexpr int kFragments = kM * kQueries / 16;
  static constexpr int kStages = 2 * kKeyBytes, kWeights = kStages + 2 * kStageBytes,
                       kRows = kWeights + kPairs * kFragments * 32 * 16, kRowBytes = kQueries * 16,
                       kBytes = kRows + 2 * kRowBytes;
};

// Positions of the queries of a stage.
struct StagePlace {
  int shift;  // position of the first one, relative to the block's first key
  int queries;
};

// The tiles of queries that see some key of a block: [begin, end) in the numbering of the tiles of
// all query pages that visit its page.
struct QueryRun {
  const std::int32_t* pages;
  int begin, end;

  static __device__ __forceinline__ QueryRun of(const AttentionSizes& z, const DeviceVisits& visits,
                                                std::int64_t visited, int max_rows,
                                                std::int64_t key, int keys) {
    const int tiles = (z.P + max_rows - 1) / max_rows;
    const std::int64_t offset = visits.back_offsets[visited];
    const int all = static_cast<int>(visits.back_offsets[visited + 1] - offset) * tiles;
    QueryRun run{visits.back_queries + offset, 0, all};
    const auto tile_at = [&](int i) {
      return QueryTile::of(z, run.pages[i / tiles], i % tiles, max_rows);
    };
    while (run.begin < all) {
      const QueryTile query = tile_at(run.begin);
      if (query.rows > 0 && visits.chunk_begin + query.first + query.rows > key) break;
      ++run.begin;
    }
    while (run.end > run.begin) {
      const QueryTile query = tile_at(run.end - 1);
      if (query.rows > 0 && visits.first_visible[query.first] < key + keys) break;
      --run.end;
    }
    return run;
  }
};

// -infinity where a key (row) is not seen by a query (column). Key 0 of the products is key `row`
// of the block; query n sees from first_visible[n] on.
template <int kM, int kN>
__device__ __forceinline__ void mask_transposed(const std::int64_t* first_visible, std::int64_t key,
                                                int row, StagePlace place, float (&s)[kM][kN][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = n * 8 + lane % 4 * 2 + i;
      const int begin = clamp_to_int(first_visible[query] - key);
      const int end = query < place.queries ? place.shift + query : INT_MIN;
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int position = row + m * 16 + half * 8 + lane / 4;
          const bool seen = (position >= begin) & (position <= end);
          s[m][n][2 * half + i] = seen ? s[m][n][2 * half + i] : -INFINITY;
        }
    }
}

template <class Tiles, class G>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    dkv_kernel(MatrixBackward a, DevicePages gradient_pages, std::uint64_t rounding) {
  constexpr int kC = Tiles::kC, kM = Tiles::kM, kQueries = Tiles::kQueries;
  const AttentionSizes& z = a.sizes;
  const int kv_head = static_cast<int>(blockIdx.x) % z.K, tile = static_cast<int>(blockIdx.x) / z.K;
  const int key_tiles = (z.P + Tiles::kKeys - 1) / Tiles::kKeys, visited = tile / key_tiles;
  const int row = tile % key_tiles * Tiles::kKeys;  // of the page
  const std::int64_t page = a.visits.visited[visited], key = page * z.P + row;
  const int keys = static_cast<int>(
      min(std::int64_t{min(Tiles::kKeys, z.P - row)}, a.visits.chunk_begin + z.T - key));
  if (keys <= 0) return;
  const QueryRun run = QueryRun::of(z, a.visits, visited, kQueries, key, keys);
  const int steps_of_head = run.end - run.begin, steps = steps_of_head * z.group();
  if (steps == 0) return;

  std::byte* const shared = dynamic_shared();
  const std::uint32_t k = shared_address(shared), stages = k + Tiles::kStages;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int lane_offset = Tile<kC>::lane_offset(lane);
  const int pair = warp % Tiles::kPairs;
  const bool is_second = warp >= Tiles::kPairs;

  const auto load = [&](int step, int stage) {
    const int head = kv_head * z.group() + step / steps_of_head;
    const int tiles = (z.P + kQueries - 1) / kQueries, i = run.begin + step % steps_of_head;
    const QueryTile query = QueryTile::of(z, run.pages[i / tiles], i % tiles, kQueries);
    const std::int64_t from = query.first * z.query_stride() + head * z.C;
    const std::uint32_t q = stages + stage * Tiles::kStageBytes;
    copy_rows_async<kC, kQueries>(q, query.rows, z.C, a.q_THC + from, z.query_stride());
    copy_rows_async<kC, kQueries>(q + Tiles::kQueryBytes, query.rows, z.C, a.dout_THC + from,
                                  z.query_stride());
    const int n = static_cast<int>(computed_anew(threadIdx.x)), at = n < query.rows ? n : 0;
    const std::uint32_t to = k + Tiles::kRows + stage * Tiles::kRowBytes + n * 8;
    if (n < kQueries) {
      copy_8_async(to, a.statistics_HT + head * z.T + query.first + at, n < query.rows);
      copy_8_async(to + kQueries * 8, a.visits.first_visible + query.first + at, n < query.rows);
    }
    return StagePlace{clamp_to_int(a.visits.chunk_begin + query.first - key), query.rows};
  };

  const bf16* keys_at = plane_of<const bf16>(a.kv, page, 0, kv_head) + row * z.key_stride();
  copy_rows_async<kC, Tiles::kKeys>(k, keys, z.C, keys_at, z.key_stride());
  copy_rows_async<kC, Tiles::kKeys>(k + Tiles::kKeyBytes, keys, z.C,
                                    keys_at + std::int64_t{z.K} * z.C, z.key_stride());
  StagePlace next = load(0, 0);

  const int own_begin = pair * Tiles::kPairKeys, own_end = min(own_begin + Tiles::kPairKeys, keys);
  const std::uint32_t own =
      k + (is_second ? Tiles::kKeyBytes : 0) + own_begin * Tile<kC>::kRowBytes;
  Fragment* const passed =
      reinterpret_cast<Fragment*>(shared + Tiles::kWeights) + pair * Tiles::kFragments * 32 + lane;
  float gradient[kM][kC / 8][4];
  clear(gradient);
  for (int step = 0; step < steps; ++step) {
    const int stage = step % 2;
    wait_for_copies();
    __syncthreads();  // the stage is full, and no warp reads the other one or `passed` any more
    const StagePlace place = next;
    if (step + 1 < steps) next = load(step + 1, stage ^ 1);
    const std::byte* const rows = shared + Tiles::kRows + stage * Tiles::kRowBytes;
    const auto* statistics = reinterpret_cast<const QueryStatistics*>(rows);
    const auto* first_visible = reinterpret_cast<const std::int64_t*>(rows + kQueries * 8);
    // Both warps of a pair take the same branch.
    if (own_begin >= own_end || own_begin >= place.shift + place.queries ||
        key + own_end <= first_visible[0])
      continue;
    const std::uint32_t q = stages + stage * Tiles::kStageBytes, dout = q + Tiles::kQueryBytes;
    Fragment left[kM][kQueries / 16];
    {
      float s[kM][kQueries / 8][4];
      row_products<kC>(own, is_second ? dout : q, lane_offset, s);
      if (!is_second) {
        const bool all_seen = place.queries == kQueries && own_end - 1 <= place.shift &&
                              key + own_begin >= first_visible[kQueries - 1];
        if (!all_seen) mask_transposed(first_visible, key, own_begin, place, s);
#pragma unroll
        for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float lse_log2 = statistics[n * 8 + lane % 4 * 2 + i % 2].lse_log2;
#pragma unroll
            for (int m = 0; m < kM; ++m)
              s[m][n][i] = exp2_approximate(fmaf(s[m][n][i], z.scale * kLog2E, -lse_log2));
          }
        round_to_fragments(s, left);
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int n = 0; n < kQueries / 16; ++n) passed[(m * kQueries / 16 + n) * 32] = left[m][n];
        pair == 0 ? barrier_arrive<1, 64>() : barrier_arrive<2, 64>();
      } else {
        pair == 0 ? barrier_wait<1, 64>() : barrier_wait<2, 64>();
#pragma unroll
        for (int n = 0; n < kQueries / 16; ++n)
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            const Fragment weights = passed[(m * kQueries / 16 + n) * 32];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const QueryStatistics* of = statistics + n * 16 + i / 2 * 8 + lane % 4 * 2;
              float* pair_of = &s[m][2 * n + i / 2][i % 2 * 2];
              pair_of[0] = low_bf16(weights.quarters[i]) * (pair_of[0] - of[0].delta);
              pair_of[1] = high_bf16(weights.quarters[i]) * (pair_of[1] - of[1].delta);
            }
          }
        round_to_fragments(s, left);
      }
    }
    add_weighted_rows<kC>(left, is_second ? q : dout, lane_offset, gradient);
  }

  G* const to = plane_of<G>(gradient_pages, page, is_second ? 0 : 1, kv_head) +
                row * z.key_stride() + lane % 4 * 2;
  const float factor = is_second ? z.scale : 1.0f;
  const auto first_element =
      static_cast<unsigned>(((is_second ? 0 : z.K) + kv_head) * z.C + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own_row = own_begin + m * 16 + half * 8 + lane / 4;
      if (own_row >= own_end) continue;
      const RowRounding own_rounding(rounding, key + own_row);
#pragma unroll
      for (int n = 0; n < kC / 8; ++n) {
        if (n * 8 >= z.C) break;
        G* const at = to + own_row * z.key_stride() + n * 8;
        float sum[2];
        load_floats<2>(at, sum);
        sum[0] = fmaf(gradient[m][n][2 * half], factor, sum[0]);
        sum[1] = fmaf(gradient[m][n][2 * half + 1], factor, sum[1]);
        store_gradient<2>(sum, own_rounding, first_element + n * 8, at);
      }
    }
}

template <class Tiles>
void launch(cudaStream_t stream, const MatrixBackward& a, const DevicePages& gradients,
            DType gradient_type, std::uint64_t rounding) {
  dispatch_activation(gradient_type, [&](auto type) {
    using G = typename decltype(type)::type;
    launch_attention(dkv_kernel<Tiles, G>,
                     a.visits.visited_pages * ceil_div(a.sizes.P, Tiles::kKeys) * a.sizes.K,
                     Tiles::kBytes, stream, a, gradients, rounding);
  });
}

}  // namespace

void launch_matrix_dkv(cudaStream_t stream, const MatrixBackward& a, const DevicePages& gradients,
                       DType gradient_type, std::uint64_t rounding) {
  int device = 0, room = 0;
  LS_CUDA(cudaGetDevice(&device));
  LS_CUDA(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  dispatch_head_size(a.sizes.C, [&](auto head_size) {
    constexpr int kC = decltype(head_size)::value;
    if constexpr (kC <= 128)
      if (room >= DkvTiles<kC, 64>::kBytes)
        return launch<DkvTiles<kC, 64>>(stream, a, gradients, gradient_type, rounding);
    if constexpr (kC >= 128)
      launch<DkvTiles<kC, 32>>(stream, a, gradients, gradient_type, rounding);
    else
      LS_CHECK(false, "{} bytes of shared memory a block, heads of {}", room, kC);
  });
}

}  // namespace longstride::ops::cuda
