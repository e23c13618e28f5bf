// Page scores by products of warpgroups. As in the kernels for other matrix units, rows of q stay
// in registers in the first pass and means in the second, and the other operand streams through
// shared memory. A warp that starts products waits until the unit has taken them, so products and
// exponentials overlap only in different warps: half of the warpgroups multiply while the others
// add up the weights of the tile they have multiplied.
#include "ops/cuda/page_scores_lanes.cuh"
#include "ops/cuda/warpgroup_unit.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kTile = 128;  // rows that stream
// Tiles in shared memory. A half of the warpgroups that has taken its turn with a tile copies the
// next but one; the other half may still multiply the tile or the one before.
constexpr int kStages = 4;

template <int kHeadSize, int kMeans, int kGroupCount>
struct GroupTiles {
  static constexpr int kC = kHeadSize, kS = kMeans;
  static constexpr int kGroups = kGroupCount, kThreads = kGroups * kWarpgroupThreads;
  static constexpr int kOwnRows = kGroups * kWarpgroupRows;  // rows in registers of a block
  static constexpr int kPages = kOwnRows / kS;               // of a block of the second pass
  using Own = PanelTile<kC, kOwnRows>;
  using Streamed = PanelTile<kC, kTile>;
  // Shared memory: own rows, stages of rows that stream, in the second pass as many of stats.
  static constexpr int kStreamed = Own::kBytes, kStats = kStreamed + kStages * Streamed::kBytes,
                       kStatsBytes = kTile * 8, kBytes = kStats + kStages * kStatsBytes;
};

#ifdef LS_WARPGROUPS

constexpr int kHalf = kTile / 2;

// Two halves of a block's warpgroups multiply in turn. What a thread wrote before pass() and its
// own take() is visible to all threads of the half that takes the turn.
template <class Tiles>
class Turns {
 public:
  __device__ __forceinline__ explicit Turns(int warp)
      : second_(warp >= Tiles::kThreads / 32 / 2 ? 1 : 0) {}
  __device__ __forceinline__ bool second() const { return second_ != 0; }
  __device__ __forceinline__ void take() const {
    asm volatile("bar.sync %0, %1;\n" ::"r"(1 + second_), "n"(Tiles::kThreads) : "memory");
  }
  __device__ __forceinline__ void pass() const {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(2 - second_), "n"(Tiles::kThreads) : "memory");
  }

 private:
  int second_;
};

// Products with both halves of a tile.
template <class Tiles>
__device__ __forceinline__ void start_tile(const Fragment (&left)[Tiles::kC / 16],
                                           std::uint32_t tile, float (&first)[8][4],
                                           float (&second)[8][4]) {
  start_products<Tiles::kC, kTile>(left, tile, first);
  start_products<Tiles::kC, kTile>(left, tile + kHalf * 128, second);
}

// A warp's 16 rows, which it has copied to `from`.
template <class Tiles>
__device__ __forceinline__ void load_own_rows(std::uint32_t from, int lane,
                                              Fragment (&rows)[Tiles::kC / 16]) {
#pragma unroll
  for (int k = 0; k < Tiles::kC / 16; ++k)
    rows[k] = load_fragment(from + static_cast<std::uint32_t>(Tiles::Own::lane_offset(lane, k)));
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
  constexpr int kC = Tiles::kC, kS = Tiles::kS, kTilePages = kTile / kS;
  const int blocks = (w.R + Tiles::kOwnRows - 1) / Tiles::kOwnRows;
  const int kv_head = static_cast<int>(blockIdx.x) / blocks % w.K,
            split = static_cast<int>(blockIdx.x) / blocks / w.K;
  const int begin = split * w.split_pages, end = min(begin + w.split_pages, w.N);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_row = static_cast<int>(blockIdx.x) % blocks * Tiles::kOwnRows + warp * 16;

  const std::uint32_t shared = shared_address(dynamic_shared()),
                      streamed = shared + Tiles::kStreamed, own = shared + warp * 16 * 128;
  const auto load = [&](int page, int stage) {
    copy_score_rows<typename Tiles::Streamed, kTile, Tiles::kThreads>(
        streamed + stage * Tiles::Streamed::kBytes, static_cast<int>(computed_anew(threadIdx.x)),
        w.C, [&](int c) {
          const MeanColumn<kS> column(c);
          const bool present = page + column.page < end;
          return SourceRow{mean_at<kS>(w, kv_head, present ? page + column.page : 0, column.s),
                           present};
        });
  };

  const QueryRows rows(w, kv_head);
  copy_score_rows<typename Tiles::Own, 16, 32>(own, lane, w.C, [&](int row) {
    const bool present = own_row + row < w.R;
    return SourceRow{rows.at(present ? own_row + row : 0), present};
  });
  load(begin, 0);
  load(begin + kTilePages, 1);
  wait_for_copies();
  show_to_unit();
  __syncwarp();

  Fragment left[kC / 16];
  load_own_rows<Tiles>(own, lane, left);
  LaneSums<1, kS> sums;
  float first[1][8][4], second[1][8][4];  // halves of a tile
  const Turns<Tiles> turns(warp);
  if (turns.second()) turns.pass();
  for (int page = begin, stage = 0; page < end; page += kTilePages, ++stage) {
    wait_for_copies();  // of the next tile
    show_to_unit();
    turns.take();
    start_tile<Tiles>(left, streamed + stage % kStages * Tiles::Streamed::kBytes, first[0],
                      second[0]);
    if (!turns.second() || page + kTilePages < end) turns.pass();
    wait_for_products(first[0]);
    wait_for_products(second[0]);
    if (page + 2 * kTilePages < end) load(page + 2 * kTilePages, (stage + 2) % kStages);
    sums.add(w.scale_log2, end - page, first);
    sums.add(w.scale_log2, end - page - kHalf / kS, second);
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
  constexpr int kC = Tiles::kC, kS = Tiles::kS, kWarpPages = 16 / kS;
  const int page_blocks = (w.N + Tiles::kPages - 1) / Tiles::kPages;
  const int query_page = static_cast<int>(blockIdx.x) / page_blocks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own_page =
      static_cast<int>(blockIdx.x) % page_blocks * Tiles::kPages + warp * kWarpPages;
  const int first_row = query_page * w.page_rows, end_row = min(first_row + w.page_rows, w.R);

  std::byte* const memory = dynamic_shared();
  const std::uint32_t shared = shared_address(memory), streamed = shared + Tiles::kStreamed,
                      own = shared + warp * 16 * 128;
  const auto load_means = [&](int kv_head) {
    copy_score_rows<typename Tiles::Own, 16, 32>(
        own, static_cast<int>(computed_anew(threadIdx.x)) % 32, w.C, [&](int row) {
          const MeanOfRow<kS> mean(row);
          const bool present = own_page + mean.page < w.N;
          return SourceRow{mean_at<kS>(w, kv_head, present ? own_page + mean.page : 0, mean.s),
                           present};
        });
  };
  const auto load_queries = [&](int kv_head, int first, int stage) {
    const int thread = static_cast<int>(computed_anew(threadIdx.x));
    const QueryRows rows(w, kv_head);
    copy_score_rows<typename Tiles::Streamed, kTile, Tiles::kThreads>(
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
  Fragment left[kC / 16];
  float sum[2] = {}, first[8][4], second[8][4];  // halves of a tile
  // The tile that is copied next: of this KV head, or the first of the next.
  int next_head = 0, next_row = first_row, next_stage = 0;
  const auto load_next = [&] {
    if (next_head == w.K) return;
    load_queries(next_head, next_row, next_stage % kStages);
    next_row += kTile;
    if (next_row >= end_row) next_row = first_row, ++next_head;
    ++next_stage;
  };
  load_means(0);
  load_next();
  load_next();
  wait_for_copies();
  show_to_unit();
  const Turns<Tiles> turns(warp);
  if (turns.second()) turns.pass();
  for (int kv_head = 0, stage = 0; kv_head < w.K; ++kv_head) {
    wait_for_copies();
    __syncwarp();
    load_own_rows<Tiles>(own, lane, left);
    __syncwarp();
    for (int row = first_row; row < end_row; row += kTile, ++stage) {
      const int at = stage % kStages;
      wait_for_copies();  // of the next tile
      show_to_unit();
      turns.take();
      start_tile<Tiles>(left, streamed + at * Tiles::Streamed::kBytes, first, second);
      if (!turns.second() || row + kTile < end_row || kv_head + 1 < w.K) turns.pass();
      wait_for_products(first);
      wait_for_products(second);
      load_next();
      if (row == first_row && kv_head + 1 < w.K) load_means(kv_head + 1);
      add_weights<kS>(first, stats_of(at, 0), scale, lane, sum);
      add_weights<kS>(second, stats_of(at, 1), scale, lane, sum);
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
