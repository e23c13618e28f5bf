// Token embedding, backward: the contract is in ops/embedding.h.
//
// A token outside the vocabulary gets no gradient. embedding_work.h assigns the work to blocks;
// every element of the table is summed in the order of its token's rows.
#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/embedding_work.h"
#include "ops/cuda/matrix_unit.cuh"
#include "ops/cuda/vector_access.cuh"
#include "ops/embedding.h"
#include "tensor/token_rows.h"

namespace longstride::ops::cuda {
namespace {

constexpr int kMostThreads = 256;  // of a block
constexpr int kResident = 1024;    // threads that an SM runs at once, by their registers
constexpr int kRowsAhead = 8;      // rows of dy in flight at once

constexpr int kTiles = 6;                       // of a long token's slice in shared memory
constexpr int kTilesAhead = kTiles - 1;         // in flight while one is added
constexpr int kNumbersAhead = 2 * kTilesAhead;  // tiles whose row numbers are copied ahead
constexpr int kNumberTiles = 2 * kTiles;
constexpr int kPartsOfRow = kSliceBytes / 16;

// Blocks that an SM's shared memory holds at once.
constexpr int kResidentBlocks =
    227 * 1024 / (kTiles * kTileRows * kSliceBytes + kNumberTiles * kTileRows * 4 + 1024);

// Adds one slice of a long token's columns. The block copies tiles of its rows into shared memory,
// many at once, because the additions of a column depend on each other; one warp adds them, 4 bytes
// of a row per lane. All threads of the block call this.
template <class E>
__device__ void add_slice(const TokenGroup& group, int slice,
                          const std::int32_t* __restrict__ rows_T, const E* __restrict__ dy_TD,
                          std::int64_t D, float scale, float* __restrict__ dtable_VD) {
  constexpr int kColumns = kSliceBytes / static_cast<int>(sizeof(E));
  constexpr int kOfLane = 4 / static_cast<int>(sizeof(E));
  __shared__ __align__(128) E tiles[kTiles][kTileRows][kColumns];
  __shared__ std::int32_t numbers[kNumberTiles][kTileRows];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const std::int64_t begin = std::int64_t{slice} * kColumns;
  const int columns = static_cast<int>(min(std::int64_t{kColumns}, D - begin));
  const int count = (group.count + kTileRows - 1) / kTileRows;
  // Not positive for a tile beyond the last.
  const auto rows_of = [&](int tile) { return min(kTileRows, group.count - tile * kTileRows); };
  const auto bring_numbers = [&](int tile) {
    for (int r = thread; r < rows_of(tile); r += threads)
      copy_4_async(shared_address(&numbers[tile % kNumberTiles][r]),
                   rows_T + group.begin + tile * kTileRows + r);
  };
  const auto bring_rows = [&](int tile) {
    for (int i = thread; i < rows_of(tile) * kPartsOfRow; i += threads) {
      const int r = i / kPartsOfRow, column = i % kPartsOfRow * (16 / static_cast<int>(sizeof(E)));
      if (column < columns)
        copy_16_async(shared_address(&tiles[tile % kTiles][r][column]),
                      dy_TD + numbers[tile % kNumberTiles][r] * D + begin + column, true);
    }
  };

  for (int tile = 0; tile < kNumbersAhead; ++tile) bring_numbers(tile);
  const int column = thread * kOfLane;
  const bool adds = thread < 32 && column < columns;
  float* const to = dtable_VD + group.token * D + begin + column;
  float sum[kOfLane];
  if (adds) load_floats<kOfLane>(to, sum);
  wait_for_copies();
  __syncthreads();  // also: no thread reads tiles of the previous slice any more
  for (int tile = 0; tile < kTilesAhead; ++tile) {
    bring_rows(tile);
    end_copies();
  }
  for (int tile = 0; tile < count; ++tile) {
    // This tile's rows have arrived, and with them the row numbers of the tile copied next.
    wait_for_copies_but<kTilesAhead - 1>();
    __syncthreads();
    bring_rows(tile + kTilesAhead);
    bring_numbers(tile + kNumbersAhead);
    end_copies();
    if (!adds) continue;
    constexpr int kAtOnce = 8;
    const E* const from = &tiles[tile % kTiles][0][column];
    const int n = rows_of(tile);
    const auto add = [&](const Packed<E, kOfLane>& row) {
      float values[kOfLane];
      row.unpack(values);
#pragma unroll
      for (int j = 0; j < kOfLane; ++j) sum[j] += scale * values[j];  // a product with 1 is exact
    };
    int r = 0;
    for (; r + kAtOnce <= n; r += kAtOnce) {
      Packed<E, kOfLane> row[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        row[i] = Packed<E, kOfLane>::load(from + (r + i) * kColumns);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) add(row[i]);
    }
    for (; r < n; ++r) add(Packed<E, kOfLane>::load(from + r * kColumns));
  }
  if (adds) store_floats<kOfLane>(sum, to);
}

// The number of long groups, which come first. All threads of the block call this.
__device__ __forceinline__ int count_long(const TokenGroup* __restrict__ groups, int G) {
  const int threads = static_cast<int>(blockDim.x);
  for (int from = 0;; from += threads) {
    const int g = from + static_cast<int>(threadIdx.x);
    const int found = __syncthreads_count(g < G && groups[g].count > kLongRows);
    if (found < threads) return from + found;
  }
}

// With `kLong`, slices of long tokens first. Then a block adds a piece of D, one vector of columns
// per thread, of the tokens that it visits.
template <class E, int N, bool kLong>
__global__ void __launch_bounds__(kMostThreads, kResident / kMostThreads)
    backward_kernel(const TokenGroup* __restrict__ groups, int G,
                    const std::int32_t* __restrict__ rows_T, const E* __restrict__ dy_TD,
                    std::int64_t V, std::int64_t D, int slices, float scale,
                    float* __restrict__ dtable_VD) {
  const auto group_at = [&](int g) {
    const int4 four = reinterpret_cast<const int4*>(groups)[g];
    return TokenGroup{four.x, four.y, four.z, four.w};
  };
  const auto known = [&](const TokenGroup& group) { return group.token >= 0 && group.token < V; };
  const int block = static_cast<int>(blockIdx.x), piece = static_cast<int>(blockIdx.y);
  TokenGroup next = group_at(min(block, G - 1));  // in flight while the long ones are counted
  const int long_groups = kLong ? count_long(groups, G) : 0;
  const EmbeddingWork work(G, long_groups, long_groups > 0 ? group_at(0).count : 0,
                           static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), slices);
  if constexpr (kLong) {
    for (int i = work.first_item(block, piece); i < work.items(); i += work.item_stride()) {
      const TokenGroup group = group_at(i / slices);
      if (known(group)) add_slice<E>(group, i % slices, rows_T, dy_TD, D, scale, dtable_VD);
    }
  }

  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= D) return;
  const E* const from = dy_TD + column;
  float* const table = dtable_VD + column;
  EmbeddingWork::Visit visit = work.first(block);
  if (long_groups > 0 && visit.group < G) next = group_at(visit.group);
  while (visit.group < G) {
    const TokenGroup group = next;
    visit = work.after(visit, block);
    if (visit.group < G) next = group_at(visit.group);  // in flight along with this one's rows
    if (!known(group)) continue;
    float* const to = table + group.token * D;
    const std::int32_t* const rows = rows_T + group.begin;
    float sum[N];
    Packed<E, N> row[kRowsAhead];
    row[0] = Packed<E, N>::load(from + group.first * D);
    load_floats<N>(to, sum);
    for (int r = 0; r < group.count; r += kRowsAhead) {
      if (r > 0) row[0] = Packed<E, N>::load(from + rows[r] * D);
      if (r + 1 < group.count) {  // one test, not seven, for tokens with one row
#pragma unroll
        for (int i = 1; i < kRowsAhead; ++i)
          if (r + i < group.count) row[i] = Packed<E, N>::load(from + rows[r + i] * D);
      }
#pragma unroll
      for (int i = 0; i < kRowsAhead; ++i) {
        if (r + i >= group.count) break;
        float values[N];
        row[i].unpack(values);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += scale * values[j];
      }
    }
    store_floats<N>(sum, to);
  }
}

}  // namespace

void embedding_backward(Stream& stream, const EmbeddingBackward& args) {
  if (!args.dtable_VD.present()) return;
  const std::int64_t T = args.dy_TD.dim(0), V = args.dtable_VD.dim(0), D = args.dy_TD.dim(1),
                     G = args.groups_G4.dim(0);
  const auto* groups = reinterpret_cast<const TokenGroup*>(args.groups_G4.as<std::int32_t>());
  LS_CHECK(aligned({groups}) && G <= T && T <= std::numeric_limits<std::int32_t>::max() / 2,
           "{} groups of {} rows at {}", G, T, fmt::ptr(groups));
  if (G * D == 0) return;
  const longstride::cuda::CudaStream& context = longstride::cuda::cuda_stream(stream);
  const std::int32_t* rows_T = args.rows_T.as<std::int32_t>();
  float* dtable_VD = args.dtable_VD.as<float>();
  dispatch_activation(args.dy_TD.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    constexpr int kWidth = vector_width<E>;
    const E* dy_TD = args.dy_TD.as<E>();
    const bool fast = D % kWidth == 0 && aligned({dy_TD, dtable_VD});
    // Pieces of equal size, with as few idle threads as possible.
    const std::int64_t items = ceil_div(D, fast ? kWidth : 1),
                       pieces = ceil_div(items, kMostThreads);
    LS_CHECK(pieces <= 65535, "rows of {}", D);
    const auto threads = static_cast<unsigned>(ceil_div(ceil_div(items, pieces), 32) * 32);
    // As many blocks as run at once, with equally many tokens, but no more than there is work for.
    const bool slices_first = fast && (args.longest_group == 0 || args.longest_group > kLongRows);
    const std::int64_t slices = ceil_div(D * static_cast<std::int64_t>(sizeof(E)), kSliceBytes),
                       slices_in_all = slices_first ? std::min(G, T / (kLongRows + 1)) * slices : 0,
                       most = std::max(G, ceil_div(slices_in_all, pieces)),
                       resident = std::int64_t{context.multiprocessors()} *
                                  std::min<std::int64_t>(kResident / threads,
                                                         slices_first ? kResidentBlocks : 32);
    LS_CHECK(slices_in_all <= std::numeric_limits<std::int32_t>::max() / 2, "{} rows of {}", T, D);
    const dim3 blocks(grid_size(std::clamp(resident / pieces, std::int64_t{1}, most)),
                      static_cast<unsigned>(pieces));
    // Slices need aligned rows; without them the kernel has more registers for the rest.
    const auto kernel = !fast          ? backward_kernel<E, 1, false>
                        : slices_first ? backward_kernel<E, kWidth, true>
                                       : backward_kernel<E, kWidth, false>;
    kernel<<<blocks, threads, 0, context.handle()>>>(groups, static_cast<int>(G), rows_T, dy_TD, V,
                                                     D, static_cast<int>(slices), args.scale,
                                                     dtable_VD);
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
