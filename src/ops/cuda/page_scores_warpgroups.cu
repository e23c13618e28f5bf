// Page scores by products of warpgroups (page_scores_queue.cuh says how they share the work). Rows
// of q are rows of the products in both passes and means are columns. In the first pass rows of q
// stay in shared memory and means stream through it; in the second means stay, each warpgroup has
// its own, and q streams.
#include <algorithm>
#include <limits>

#include "ops/cuda/page_scores_queue.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kTile = 128;  // columns of a product

template <int kHeadSize, int kMeans>
struct GroupSumTiles : QueueLayout<4, PanelTile<kHeadSize, 4 * kWarpgroupRows>::kBytes,
                                   PanelTile<kHeadSize, kTile>> {
  static constexpr int kS = kMeans, kOwnRows = 4 * kWarpgroupRows, kTilePages = kTile / kS;
  using Own = PanelTile<kHeadSize, kOwnRows>;
};

template <int kHeadSize, int kMeans, int kGroupCount>
struct GroupWeightTiles
    : QueueLayout<kGroupCount, kGroupCount * PanelTile<kHeadSize, kTile>::kBytes,
                  PanelTile<kHeadSize, kWarpgroupRows>> {
  static constexpr int kS = kMeans, kGroupPages = kTile / kS, kPages = kGroupCount * kGroupPages;
  using Own = PanelTile<kHeadSize, kTile>;  // of a warpgroup
};

#ifdef LS_WARPGROUPS

// Calls f(i, score of row g, of row g + 8) for the pages i of a lane's columns in half a tile.
template <int kS, class F>
__device__ __forceinline__ void for_lane_pages(const float (&s)[8][4], const F& f) {
#pragma unroll
  for (int i = 0; i < 16 / kS; ++i) {
    float best[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      best[half] = s[i * kS / 2][2 * half + i * kS % 2];
#pragma unroll
      for (int j = i * kS + 1; j < (i + 1) * kS; ++j)
        best[half] = fmaxf(best[half], s[j / 2][2 * half + j % 2]);
    }
    f(i, best[0], best[1]);
  }
}

// Adds the pages of a whole tile with the references as they are: false, and nothing is added, if
// that gives a large sum. So the largest score is looked for in few tiles only.
template <int kS>
__device__ __forceinline__ bool add_with_references(float scale_log2, const TileProducts& s,
                                                    LaneSums<1, kS>& sums) {
  float sum[2] = {sums.sum[0][0], sums.sum[0][1]};
  const auto add = [&](int, float first, float second) {
    sum[0] += exp2_approximate(fmaf(first, scale_log2, -sums.reference[0][0]));
    sum[1] += exp2_approximate(fmaf(second, scale_log2, -sums.reference[0][1]));
  };
  for_lane_pages<kS>(s.first, add);
  for_lane_pages<kS>(s.second, add);
  if (__any_sync(0xffffffffu, fmaxf(sum[0], sum[1]) > 0x1p60f)) return false;
  sums.sum[0][0] = sum[0];
  sums.sum[0][1] = sum[1];
  return true;
}

#endif

// Blocks with the same means are adjacent.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads, 1)
    group_sums_kernel([[maybe_unused]] const __grid_constant__ PageScoresWork w) {
#ifdef LS_WARPGROUPS
  constexpr int kS = Tiles::kS, kTilePages = Tiles::kTilePages;
  const int blocks = (w.R + Tiles::kOwnRows - 1) / Tiles::kOwnRows;
  const int kv_head = static_cast<int>(blockIdx.x) / blocks % w.K,
            split = static_cast<int>(blockIdx.x) / blocks / w.K;
  const int begin = split * w.split_pages, end = min(begin + w.split_pages, w.N);
  const int warp = own_warp(), lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t shared = shared_address(dynamic_shared());
  const TileQueue<Tiles> tiles(shared);
  tiles.prepare();
  if (warp >= Tiles::kWarps) {
    give_registers<Tiles>();
    unsigned i = 0;
    for (int page = begin; page < end; page += kTilePages, ++i) {
      tiles.begin_tile(i);
      copy_mean_tile<typename Tiles::Streamed, kTile, kS>(w, kv_head, page, end, tiles.tile(i));
      tiles.end_tile(i);
    }
    if (i > 0) tiles.end_last_tile(i - 1);
    return;
  }
  take_registers<Tiles>();

  const int own_row = static_cast<int>(blockIdx.x) % blocks * Tiles::kOwnRows + warp * 16;
  const QueryRows rows(w, kv_head);
  copy_score_rows<typename Tiles::Own, 16, 32>(shared + warp * 16 * 128, lane, w.C, [&](int row) {
    const bool present = own_row + row < w.R;
    return SourceRow{rows.at(present ? own_row + row : 0), present};
  });
  wait_for_own_rows(warp);
  LaneSums<1, kS> sums;
  TileProducts products;
  const Turns<Tiles> turns(warp / 4);
  turns.begin();
  unsigned i = 0;
  for (int page = begin; page < end; page += kTilePages, ++i) {
    tiles.take(i);
    turns.take();
    start_products<typename Tiles::Own, typename Tiles::Streamed>(
        shared + warp / 4 * kWarpgroupRows * 128, tiles.tile(i), products);
    turns.pass(page + kTilePages >= end);
    wait_for_products(products);
    tiles.give_back(i);
    if (page + kTilePages <= end && add_with_references(w.scale_log2, products, sums)) continue;
    using Block = float[1][8][4];  // of one block of rows
    sums.add(w.scale_log2, end - page, reinterpret_cast<const Block&>(products.first));
    sums.add(w.scale_log2, end - page - kTilePages / 2,
             reinterpret_cast<const Block&>(products.second));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    sums.store(w, split, kv_head, own_row + half * 8 + lane / 4, 0, half);
#endif
}

// Blocks with the same rows of q are adjacent. A lane sums the weights of its columns' pages over
// rows g and g + 8 of all products; lanes and warps meet at the end.
template <class Tiles>
__global__ void __launch_bounds__(Tiles::kThreads, 1)
    group_weights_kernel([[maybe_unused]] const __grid_constant__ PageScoresWork w) {
#ifdef LS_WARPGROUPS
  constexpr int kS = Tiles::kS, kRows = kWarpgroupRows, kLanePages = 32 / kS;
  const int page_blocks = (w.N + Tiles::kPages - 1) / Tiles::kPages;
  const int query_page = static_cast<int>(blockIdx.x) / page_blocks;
  const int first_row = query_page * w.page_rows, end_row = min(first_row + w.page_rows, w.R);
  const int warp = own_warp(), lane = static_cast<int>(threadIdx.x) % 32;
  std::byte* const memory = dynamic_shared();
  const std::uint32_t shared = shared_address(memory);
  const TileQueue<Tiles> tiles(shared);
  tiles.prepare();
  if (warp >= Tiles::kWarps) {
    give_registers<Tiles>();
    const QueryTiles<typename Tiles::Streamed, kRows> queries(w);
    unsigned i = 0;
    for (int kv_head = 0; kv_head < w.K; ++kv_head)
      for (int row = first_row; row < end_row; row += kRows, ++i) {
        tiles.begin_tile(i);
        queries.copy(w, kv_head, row, end_row, tiles.tile(i));
        tiles.end_tile(i);
      }
    if (i > 0) tiles.end_last_tile(i - 1);
    return;
  }
  take_registers<Tiles>();

  const int group = warp / 4,
            own_page = static_cast<int>(blockIdx.x) % page_blocks * Tiles::kPages +
                       group * Tiles::kGroupPages;
  const std::uint32_t own = shared + group * Tiles::Own::kBytes;
  const auto load_means = [&](int kv_head) {
    copy_mean_tile<typename Tiles::Own, kTile, kS>(w, kv_head, own_page, w.N, own);
  };
  const float scale = w.scale_log2 * static_cast<float>(w.power);
  float sum[kLanePages] = {};
  TileProducts products;
  const Turns<Tiles> turns(group);
  load_means(0);
  turns.begin();
  unsigned tile = 0;
  for (int kv_head = 0; kv_head < w.K; ++kv_head) {
    wait_for_own_rows(warp);
    const float2* const stats = w.stats + std::int64_t{kv_head} * w.R;
    for (int row = first_row; row < end_row; row += kRows, ++tile) {
      // Rows that are not there have no weight. Products hide the latency of these loads.
      const int g = row + warp % 4 * 16 + lane / 4;
      const float2 none = {0.0f, 0.0f}, first = g < end_row ? stats[g] : none,
                   second = g + 8 < end_row ? stats[g + 8] : none;
      const bool last_row = row + kRows >= end_row, last = last_row && kv_head + 1 == w.K;
      tiles.take(tile);
      turns.take();
      start_products<typename Tiles::Streamed, typename Tiles::Own>(tiles.tile(tile), own,
                                                                    products);
      turns.pass(last);
      wait_for_products(products);
      tiles.give_back(tile);
      if (last_row && !last) {
        warpgroup_barrier(warp);  // none of its warps reads the means any more
        load_means(kv_head + 1);
      }
      const auto add = [&](int from, const float(&s)[8][4]) {
        for_lane_pages<kS>(s, [&](int page, float of_first, float of_second) {
          float& to = sum[from + page];
          to = fmaf(exp2_approximate(fmaf(of_first, scale, -first.x)), first.y, to);
          to = fmaf(exp2_approximate(fmaf(of_second, scale, -second.x)), second.y, to);
        });
      };
      add(0, products.first);
      add(kLanePages / 2, products.second);
    }
  }

  // [warp of the group][page], where the means were.
  float* const totals = reinterpret_cast<float*>(memory + group * Tiles::Own::kBytes);
  warpgroup_barrier(warp);
#pragma unroll
  for (int i = 0; i < kLanePages; ++i) {
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2)
      sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], offset);
    const int page = kS == 1 ? i / 2 * 8 + 2 * lane + i % 2 : i * 4 + lane;
    if (lane < 4) totals[warp % 4 * kTile + page] = sum[i];
  }
  warpgroup_barrier(warp);
  const int page = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  if (page < Tiles::kGroupPages && own_page + page < w.N) {
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) total += totals[i * kTile + page];
    w.scores_QN[query_page * w.scores_stride + own_page + page] = total;
  }
#endif
}

template <class Tiles, class Kernel>
void launch(Kernel kernel, std::int64_t blocks, cudaStream_t stream, const PageScoresWork& w) {
  LS_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::kBytes));
  kernel<<<grid_size(blocks), Tiles::kThreads, static_cast<std::size_t>(Tiles::kBytes), stream>>>(
      w);
  LS_CUDA_LAUNCHED();
}

// Multiprocessors of most GPUs that run these kernels. A number of its own, so that bits are the
// same on others.
constexpr std::int64_t kProcessors = 132;

std::int64_t rounds(std::int64_t blocks) { return ceil_div(blocks, kProcessors); }

// The cut of the pages that ends first: a block takes as long to begin as for 1.5 tiles.
template <class Tiles>
void choose_group_splits(PageScoresWork& w) {
  const std::int64_t tiles = ceil_div(w.N, Tiles::kTilePages),
                     blocks = ceil_div(w.R, Tiles::kOwnRows) * w.K;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t splits = 1; splits <= std::min(tiles, kMaxPageSplits); ++splits) {
    const std::int64_t split_tiles = ceil_div(tiles, splits), cut = ceil_div(tiles, split_tiles),
                       time = rounds(blocks * cut) * (2 * split_tiles + 3);
    if (time >= least) continue;
    least = time;
    w.splits = static_cast<int>(cut);
    w.split_pages = static_cast<int>(split_tiles * Tiles::kTilePages);
  }
}

template <class Tiles>
void launch_sums(cudaStream_t stream, PageScoresWork& w) {
  choose_group_splits<Tiles>(w);
  launch<Tiles>(group_sums_kernel<Tiles>, ceil_div(w.R, Tiles::kOwnRows) * w.K * w.splits, stream,
                w);
  merge_page_sums(stream, w);
}

template <int kC, int kS>
void launch_weights(cudaStream_t stream, const PageScoresWork& w) {
  using Large = GroupWeightTiles<kC, kS, 4>;
  using Small = GroupWeightTiles<kC, kS, 2>;
  const auto blocks = [&](int pages) { return ceil_div(w.R, w.page_rows) * ceil_div(w.N, pages); };
  // Few pages: smaller blocks, which take some 5/9 of the time; the bits are the same.
  if (rounds(blocks(Large::kPages)) * 9 <= rounds(blocks(Small::kPages)) * 5)
    launch<Large>(group_weights_kernel<Large>, blocks(Large::kPages), stream, w);
  else
    launch<Small>(group_weights_kernel<Small>, blocks(Small::kPages), stream, w);
}

}  // namespace

bool fits_warpgroup_page_scores(DType t, std::int64_t head_size, std::int64_t means) {
  static const bool runs = runs_warpgroups(group_sums_kernel<GroupSumTiles<128, 1>>);
  return runs && head_size <= 128 && fits_matrix_page_scores(t, head_size, means);
}

void warpgroup_page_scores(cudaStream_t stream, PageScoresWork w, int means) {
  dispatch_page_scores(w.C, means, false, [&](auto head_size, auto s, auto) {
    if constexpr (decltype(head_size)::value <= 128) {
      constexpr int kC = decltype(head_size)::value, kS = decltype(s)::value;
      launch_sums<GroupSumTiles<kC, kS>>(stream, w);
      launch_weights<kC, kS>(stream, w);
    }
  });
}

}  // namespace longstride::ops::cuda
