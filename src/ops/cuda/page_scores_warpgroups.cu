// Page scores by products of warpgroups. Rows of q stay in shared memory in the first pass and
// means in the second, and the other operand streams through. One warpgroup copies tiles; the
// others take each as soon as it is there and give it back, without waiting for one another: a warp
// that starts products is held up until the unit has taken them, so they overlap with the
// exponentials of other warps only.
#include "ops/cuda/page_scores_lanes.cuh"
#include "ops/cuda/warpgroup_unit.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kTile = 128;  // rows that stream
constexpr int kStages = 4;  // tiles in shared memory

template <int kHeadSize, int kMeans, int kGroupCount>
struct GroupTiles {
  static constexpr int kC = kHeadSize, kS = kMeans;
  // Warpgroups that compute, and one that copies.
  static constexpr int kGroups = kGroupCount, kWarps = kGroups * 4,
                       kThreads = kWarps * 32 + kWarpgroupThreads;
  static constexpr int kOwnRows = kGroups * kWarpgroupRows;  // rows of a block that stay
  static constexpr int kPages = kOwnRows / kS;               // of a block of the second pass
  using Own = PanelTile<kC, kOwnRows>;
  using Streamed = PanelTile<kC, kTile>;
  // Shared memory: own rows, stages of rows that stream, in the second pass as many of stats, and
  // two barriers of each stage.
  static constexpr int kStreamed = Own::kBytes, kStats = kStreamed + kStages * Streamed::kBytes,
                       kStatsBytes = kTile * 8, kBarriers = kStats + kStages * kStatsBytes,
                       kBytes = kBarriers + kStages * 16;
};

#ifdef LS_WARPGROUPS

constexpr int kHalf = kTile / 2;

// Tiles that four warps fill and kWarps others read, in order. All methods are called by whole
// warps.
template <class Tiles>
class TileQueue {
 public:
  __device__ __forceinline__ explicit TileQueue(std::uint32_t shared)
      : barriers_(shared + Tiles::kBarriers) {}
  // Before anything else, by all warps.
  __device__ __forceinline__ void prepare() const {
    if (threadIdx.x < kStages) {
      shared_barrier_init(full(static_cast<int>(threadIdx.x)), 4);
      shared_barrier_init(empty(static_cast<int>(threadIdx.x)), Tiles::kWarps);
    }
    __syncthreads();
  }

  // The warps that fill: wait until tile `i` may be overwritten; then end_tile after its copies.
  __device__ __forceinline__ void begin_tile(int i) const {
    if (i >= kStages) shared_barrier_wait(empty(i % kStages), i / kStages - 1);
  }
  // Tile i is under way; shows the one before.
  __device__ __forceinline__ void end_tile(int i) const {
    end_copies();
    wait_for_copies_but<1>();
    if (i > 0) show(i - 1);
  }
  __device__ __forceinline__ void end_last_tile(int i) const {
    wait_for_copies();
    show(i);
  }

  // The others: wait until it is there; give it back.
  __device__ __forceinline__ void take(int i) const {
    shared_barrier_wait(full(i % kStages), i / kStages);
  }
  __device__ __forceinline__ void give_back(int i) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_barrier_arrive(empty(i % kStages));
  }

 private:
  __device__ __forceinline__ std::uint32_t full(int stage) const { return barriers_ + stage * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ __forceinline__ void show(int i) const {
    show_to_unit();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_barrier_arrive(full(i % kStages));
  }

  std::uint32_t barriers_;
};

// Registers of the warpgroup that copies go to those that compute: 640 threads begin with 96 each.
template <class Tiles>
__device__ __forceinline__ void give_registers() {
  if constexpr (Tiles::kGroups == 4) shrink_registers<32>();
}
template <class Tiles>
__device__ __forceinline__ void take_registers() {
  if constexpr (Tiles::kGroups == 4) grow_registers<112>();
}

// The rows that this warp has begun to copy are there, and those of its warpgroup's other warps.
__device__ __forceinline__ void wait_for_own_rows(int warp) {
  wait_for_copies();
  show_to_unit();
  warpgroup_barrier(warp);
}

// A row of the second pass' means, of a warp's 16: rows g and g + 8 of the products are in one
// lane; with four means, two lanes have two each.
template <int kS>
struct MeanOfRow {
  int page, s;
  __device__ __forceinline__ explicit MeanOfRow(int r)
      : page(kS == 1   ? r
             : kS == 2 ? r % 8
                       : r % 8 / 2),
        s(kS == 1   ? 0
          : kS == 2 ? r / 8
                    : r % 2 + r / 8 * 2) {}
};

// Adds the weights of half a tile to sums of rows g and g + 8; with several means the first is the
// page's. `stats` are those of this lane's first two columns.
template <int kS>
__device__ __forceinline__ void add_weights(const float (&s)[8][4], const std::byte* stats,
                                            float scale_log2, int lane, float (&sum)[2]) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    // (reference, 1 / sum) of rows 2t and 2t + 1 of q.
    const float4 pair = *reinterpret_cast<const float4*>(stats + n * 64);
    const auto add = [&](float& to, float score, float reference, float inverse) {
      to = fmaf(exp2_approximate(fmaf(score, scale_log2, -reference)), inverse, to);
    };
    if constexpr (kS == 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        add(sum[half], s[n][2 * half], pair.x, pair.y);
        add(sum[half], s[n][2 * half + 1], pair.z, pair.w);
      }
    } else {
      const float best[2] = {fmaxf(s[n][0], s[n][2]), fmaxf(s[n][1], s[n][3])};
      if constexpr (kS == 2) {
        add(sum[0], best[0], pair.x, pair.y);
        add(sum[0], best[1], pair.z, pair.w);
      } else {
        // Of the two lanes that share a page, each takes one of the columns.
        const bool odd = lane / 4 % 2 != 0;
        const float other = __shfl_xor_sync(0xffffffffu, odd ? best[0] : best[1], 4);
        add(sum[0], fmaxf(odd ? best[1] : best[0], other), odd ? pair.z : pair.x,
            odd ? pair.w : pair.y);
      }
    }
  }
}

#endif

// Blocks with the same means are adjacent.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads, 1)
    sums_kernel([[maybe_unused]] const __grid_constant__ PageScoresWork w) {
#ifdef LS_WARPGROUPS
  constexpr int kS = Tiles::kS, kTilePages = kTile / kS;
  const int blocks = (w.R + Tiles::kOwnRows - 1) / Tiles::kOwnRows;
  const int kv_head = static_cast<int>(blockIdx.x) / blocks % w.K,
            split = static_cast<int>(blockIdx.x) / blocks / w.K;
  const int begin = split * w.split_pages, end = min(begin + w.split_pages, w.N);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_row = static_cast<int>(blockIdx.x) % blocks * Tiles::kOwnRows + warp * 16;

  const std::uint32_t shared = shared_address(dynamic_shared()),
                      streamed = shared + Tiles::kStreamed, own = shared + warp * 16 * 128,
                      group_rows = shared + warp / 4 * kWarpgroupRows * 128;
  const auto load = [&](int page, int stage) {
    copy_score_rows<typename Tiles::Streamed, kTile, kWarpgroupThreads>(
        streamed + stage * Tiles::Streamed::kBytes,
        static_cast<int>(threadIdx.x) % kWarpgroupThreads, w.C, [&](int c) {
          const MeanColumn<kS> column(c);
          const bool present = page + column.page < end;
          return SourceRow{mean_at<kS>(w, kv_head, present ? page + column.page : 0, column.s),
                           present};
        });
  };

  const TileQueue<Tiles> tiles(shared);
  tiles.prepare();
  if (warp >= Tiles::kWarps) {
    give_registers<Tiles>();
    int i = 0;
    for (int page = begin; page < end; page += kTilePages, ++i) {
      tiles.begin_tile(i);
      load(page, i % kStages);
      tiles.end_tile(i);
    }
    if (i > 0) tiles.end_last_tile(i - 1);
    return;
  }
  take_registers<Tiles>();

  const QueryRows rows(w, kv_head);
  copy_score_rows<typename Tiles::Own, 16, 32>(own, lane, w.C, [&](int row) {
    const bool present = own_row + row < w.R;
    return SourceRow{rows.at(present ? own_row + row : 0), present};
  });
  wait_for_own_rows(warp);
  LaneSums<1, kS> sums;
  TileProducts products;
  for (int page = begin, i = 0; page < end; page += kTilePages, ++i) {
    tiles.take(i);
    start_products<typename Tiles::Own, typename Tiles::Streamed>(
        group_rows, streamed + i % kStages * Tiles::Streamed::kBytes, products);
    wait_for_products(products);
    tiles.give_back(i);
    using Block = float[1][8][4];  // of one block of rows
    sums.add(w.scale_log2, end - page, reinterpret_cast<const Block&>(products.first));
    sums.add(w.scale_log2, end - page - kHalf / kS,
             reinterpret_cast<const Block&>(products.second));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    sums.store(w, split, kv_head, own_row + half * 8 + lane / 4, 0, half);
#endif
}

// Blocks with the same rows of q are adjacent.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads, 1)
    weights_kernel([[maybe_unused]] const __grid_constant__ PageScoresWork w) {
#ifdef LS_WARPGROUPS
  constexpr int kS = Tiles::kS, kWarpPages = 16 / kS;
  const int page_blocks = (w.N + Tiles::kPages - 1) / Tiles::kPages;
  const int query_page = static_cast<int>(blockIdx.x) / page_blocks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_page =
      static_cast<int>(blockIdx.x) % page_blocks * Tiles::kPages + warp * kWarpPages;
  const int first_row = query_page * w.page_rows, end_row = min(first_row + w.page_rows, w.R);

  std::byte* const memory = dynamic_shared();
  const std::uint32_t shared = shared_address(memory), streamed = shared + Tiles::kStreamed,
                      own = shared + warp * 16 * 128,
                      group_rows = shared + warp / 4 * kWarpgroupRows * 128;
  const auto load_means = [&](int kv_head) {
    copy_score_rows<typename Tiles::Own, 16, 32>(own, lane, w.C, [&](int row) {
      const MeanOfRow<kS> mean(row);
      const bool present = own_page + mean.page < w.N;
      return SourceRow{mean_at<kS>(w, kv_head, present ? own_page + mean.page : 0, mean.s),
                       present};
    });
  };
  const auto load_queries = [&](int kv_head, int first, int stage) {
    const QueryRows rows(w, kv_head);
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    copy_score_rows<typename Tiles::Streamed, kTile, kWarpgroupThreads>(
        streamed + stage * Tiles::Streamed::kBytes, thread, w.C, [&](int row) {
          const bool present = first + row < end_row;
          return SourceRow{rows.at(present ? first + row : first), present};
        });
    copy_stats<kTile>(w, kv_head, first, end_row, thread,
                      shared + Tiles::kStats + stage * Tiles::kStatsBytes);
  };
  const auto stats_of = [&](int stage, int half) {
    return memory + Tiles::kStats + stage * Tiles::kStatsBytes + half * kHalf * 8 + lane % 4 * 16;
  };

  const float scale = w.scale_log2 * static_cast<float>(w.power);
  float sum[2] = {};
  TileProducts products;
  const TileQueue<Tiles> tiles(shared);
  tiles.prepare();
  if (warp >= Tiles::kWarps) {
    give_registers<Tiles>();
    int i = 0;
    for (int kv_head = 0; kv_head < w.K; ++kv_head)
      for (int row = first_row; row < end_row; row += kTile, ++i) {
        tiles.begin_tile(i);
        load_queries(kv_head, row, i % kStages);
        tiles.end_tile(i);
      }
    if (i > 0) tiles.end_last_tile(i - 1);
    return;
  }
  take_registers<Tiles>();

  load_means(0);
  for (int kv_head = 0, i = 0; kv_head < w.K; ++kv_head) {
    wait_for_own_rows(warp);
    for (int row = first_row; row < end_row; row += kTile, ++i) {
      const int stage = i % kStages;
      tiles.take(i);
      start_products<typename Tiles::Own, typename Tiles::Streamed>(
          group_rows, streamed + stage * Tiles::Streamed::kBytes, products);
      wait_for_products(products);
      if (row + kTile >= end_row && kv_head + 1 < w.K) {
        warpgroup_barrier(warp);  // none of its warps reads the means any more
        load_means(kv_head + 1);
      }
      add_weights<kS>(products.first, stats_of(stage, 0), scale, lane, sum);
      add_weights<kS>(products.second, stats_of(stage, 1), scale, lane, sum);
      tiles.give_back(i);
    }
  }

  const auto store = [&](int page, float total) {
    total = lanes_sum<4>(total);
    if constexpr (kS == 4) total += __shfl_xor_sync(0xffffffffu, total, 4);
    if (lane % 4 == 0 && (kS < 4 || lane % 8 == 0) && page < w.N)
      w.scores_QN[query_page * w.scores_stride + page] = total;
  };
  store(own_page + (kS < 4 ? lane / 4 : lane / 8), sum[0]);
  if constexpr (kS == 1) store(own_page + 8 + lane / 4, sum[1]);
#endif
}

template <class Tiles, class Kernel>
void launch(Kernel kernel, std::int64_t blocks, cudaStream_t stream, const PageScoresWork& w) {
  LS_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::kBytes));
  kernel<<<grid_size(blocks), Tiles::kThreads, static_cast<std::size_t>(Tiles::kBytes), stream>>>(
      w);
  LS_CUDA_LAUNCHED();
}

template <class Tiles>
void launch_weights(cudaStream_t stream, const PageScoresWork& w) {
  launch<Tiles>(weights_kernel<Tiles>, ceil_div(w.R, w.page_rows) * ceil_div(w.N, Tiles::kPages),
                stream, w);
}

}  // namespace

bool fits_warpgroup_page_scores(DType t, std::int64_t head_size, std::int64_t means) {
  static const bool runs = runs_warpgroups(sums_kernel<GroupTiles<128, 1, 4>>);
  return runs && head_size <= 128 && fits_matrix_page_scores(t, head_size, means);
}

void warpgroup_page_scores(cudaStream_t stream, PageScoresWork w, int means) {
  dispatch_page_scores(w.C, means, false, [&](auto head_size, auto s, auto) {
    if constexpr (decltype(head_size)::value <= 128) {
      constexpr int kC = decltype(head_size)::value, kS = decltype(s)::value;
      using Tiles = GroupTiles<kC, kS, 4>;
      choose_page_splits(w, kTile / kS);
      launch<Tiles>(sums_kernel<Tiles>, ceil_div(w.R, Tiles::kOwnRows) * w.K * w.splits, stream, w);
      merge_page_sums(stream, w);
      // Few pages: smaller blocks, so that there are enough of them.
      if (w.N * kS >= 2048)
        launch_weights<Tiles>(stream, w);
      else
        launch_weights<GroupTiles<kC, kS, 2>>(stream, w);
    }
  });
}

}  // namespace longstride::ops::cuda
