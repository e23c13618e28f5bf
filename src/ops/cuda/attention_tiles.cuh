// Shared parts of the attention kernels for matrix units: tiles of queries, the keys that such a
// tile sees, copying them to shared memory, the mask, and storing results.
//   T tokens of a chunk   H query heads   K key/value heads   C head size   P tokens of a page
//   kC head size of a kernel: C or the next larger one; columns from C on are zeros
//
// The pages that a query page visits are treated as one run of keys: key j of the run is row j % P
// of the list's page j / P. Tiles of keys are cut from the run, so they may span pages. Positions
// of keys ascend along a run, and a tile of queries sees one range of it.
#pragma once

#include <climits>

#include "device/cuda/check.h"
#include "ops/cuda/device_visits.h"
#include "ops/cuda/matrix_tile.cuh"
#include "ops/cuda/vector_access.cuh"
#include "tensor/view.h"

namespace longstride::ops::cuda {

inline constexpr int kAttentionThreads = 128, kAttentionWarps = kAttentionThreads / 32;
inline constexpr float kLog2E = 1.4426950408889634f;

struct AttentionSizes {
  std::int64_t T = 0;
  int H = 0, K = 0, C = 0, P = 0;
  float scale = 1.0f;
  __host__ __device__ int group() const { return H / K; }
  __host__ __device__ std::int64_t query_stride() const { return std::int64_t{H} * C; }
  __host__ __device__ std::int64_t key_stride() const { return std::int64_t{2} * K * C; }
};

// A tile of at most kRows queries of one page.
struct QueryTile {
  int page;
  std::int64_t first;  // index in the chunk
  int rows;            // not positive for a tile beyond the last query
  static __device__ __forceinline__ QueryTile of(const AttentionSizes& z, int page, int tile,
                                                 int max_rows) {
    const std::int64_t begin = std::int64_t{page} * z.P, end = min(begin + z.P, z.T);
    const std::int64_t first = begin + std::int64_t{tile} * max_rows;
    return {page, first, static_cast<int>(min(std::int64_t{max_rows}, end - first))};
  }
};

__device__ __forceinline__ int clamp_to_int(std::int64_t x) {
  return static_cast<int>(max(std::int64_t{INT_MIN}, min(std::int64_t{INT_MAX}, x)));
}

// The keys that some query of a tile sees: [begin, end) of its page's run.
struct KeyRun {
  const std::int32_t* pages;
  std::int64_t origin;  // position of the tile's first query; positions of keys are relative to it
  int begin, end;

  static __device__ __forceinline__ KeyRun of(const AttentionSizes& z, const DeviceVisits& visits,
                                              const QueryTile& query) {
    const std::int64_t offset = visits.offsets[query.page];
    int count = static_cast<int>(visits.offsets[query.page + 1] - offset);
    KeyRun run{visits.kv_pages + offset, visits.chunk_begin + query.first, 0, 0};
    const std::int64_t from = visits.first_visible[query.first], last = run.origin + query.rows - 1;
    while (count > 0 && std::int64_t{run.pages[count - 1]} * z.P > last) --count;
    if (count == 0) return run;
    // Lists begin with a page that their first query sees, so the search usually ends at once.
    int low = 0, high = count;
    for (int middle = 0; low < high; middle = (low + high) / 2) {
      if ((run.pages[middle] + std::int64_t{1}) * z.P <= from)
        low = middle + 1;
      else
        high = middle;
    }
    const auto row = [&](int page, std::int64_t position) {
      return static_cast<int>(
          max(std::int64_t{0},
              min(position - std::int64_t{run.pages[page]} * z.P, static_cast<std::int64_t>(z.P))));
    };
    run.begin = low == count ? count * z.P : low * z.P + row(low, from);
    run.end = (count - 1) * z.P + row(count - 1, last + 1);
    return run;
  }
};

// How the threads of a block copy a tile: each copies one piece of every kDown-th row.
template <int kC>
struct CopyLayout {
  static constexpr int kAcross = kC <= 64 ? 8 : kC <= 128 ? 16 : 32;
  static constexpr int kDown = kAttentionThreads / kAcross;
  int piece, row;
  __device__ __forceinline__ CopyLayout() {
    const unsigned thread = computed_anew(threadIdx.x);
    piece = static_cast<int>(thread % kAcross), row = static_cast<int>(thread / kAcross);
  }
};

// Copies kRows rows into a tile; row_at(row) is the start of a row. Rows from `rows` on and columns
// from C on become zeros.
template <int kC, int kRows, class RowAt>
__device__ __forceinline__ void copy_rows_async(std::uint32_t to, int rows, int C,
                                                const RowAt& row_at) {
  const CopyLayout<kC> own;
  static_assert(kRows % own.kDown == 0);
  if (own.piece >= Tile<kC>::kPieces) return;
#pragma unroll 1
  for (int row = own.row; row < kRows; row += own.kDown) {
    const bool present = row < rows && own.piece * 8 < C;
    copy_16_async(to + static_cast<std::uint32_t>(Tile<kC>::offset(row, own.piece)),
                  row_at(present ? row : 0) + (present ? own.piece * 8 : 0), present);
  }
}

// The same for rows `stride` apart.
template <int kC, int kRows>
__device__ __forceinline__ void copy_rows_async(std::uint32_t to, int rows, int C, const bf16* from,
                                                std::int64_t stride) {
  const CopyLayout<kC> own;
  static_assert(kRows % own.kDown == 0);
  if (own.piece >= Tile<kC>::kPieces) return;
  if (own.piece * 8 >= C) rows = 0;
  from += own.row * stride + own.piece * 8;
#pragma unroll
  for (int i = 0; i < kRows / own.kDown; ++i, from += own.kDown * stride) {
    const int row = own.row + i * own.kDown;
    copy_16_async(to + static_cast<std::uint32_t>(Tile<kC>::offset(row, own.piece)), from,
                  row < rows);
  }
}

// First key or value (plane 0 or 1) of a head in a page.
template <class E>
__device__ __forceinline__ E* plane_of(const DevicePages& pages, std::int64_t page, int plane,
                                       std::int64_t kv_head) {
  return reinterpret_cast<E*>(pages.base + pages.slots[page] * pages.page_bytes) +
         (plane * pages.kv_heads + kv_head) * pages.head_size;
}

// Copies keys [first, first + kKeys) of a run, first a multiple of kKeys, and their values. Stores
// their positions: INT_MAX for keys beyond the run's end, which no query sees.
template <int kC, int kKeys>
__device__ __forceinline__ void copy_keys_async(const AttentionSizes& z, const DevicePages& kv,
                                                const KeyRun& run, int first, int kv_head,
                                                std::uint32_t k, std::uint32_t v, int* positions) {
  const int keys = min(kKeys, run.end - first);
  const int n = static_cast<int>(computed_anew(threadIdx.x));
  const std::int64_t to_value = std::int64_t{z.K} * z.C;
  if (z.P % kKeys == 0) {  // all in one page
    const std::int64_t page = run.pages[first / z.P], stride = z.key_stride();
    const int row = first % z.P;
    const bf16* from = plane_of<const bf16>(kv, page, 0, kv_head) + row * stride;
    copy_rows_async<kC, kKeys>(k, keys, z.C, from, stride);
    copy_rows_async<kC, kKeys>(v, keys, z.C, from + to_value, stride);
    if (n < kKeys)
      positions[n] = n < keys ? clamp_to_int(page * z.P + row + n - run.origin) : INT_MAX;
  } else {
    const auto key_at = [&](int i) {
      return plane_of<const bf16>(kv, run.pages[(first + i) / z.P], 0, kv_head) +
             (first + i) % z.P * z.key_stride();
    };
    copy_rows_async<kC, kKeys>(k, keys, z.C, key_at);
    copy_rows_async<kC, kKeys>(v, keys, z.C, [&](int i) { return key_at(i) + to_value; });
    if (n < kKeys)
      positions[n] = n < keys ? clamp_to_int(std::int64_t{run.pages[(first + n) / z.P]} * z.P +
                                             (first + n) % z.P - run.origin)
                              : INT_MAX;
  }
}

// first[row]: the first position that a query of the tile sees, relative to the tile's first query.
template <int kRows>
__device__ __forceinline__ void note_first_visible(const DeviceVisits& visits,
                                                   const QueryTile& query, int* first) {
  for (int row = static_cast<int>(threadIdx.x); row < kRows; row += kAttentionThreads)
    first[row] = row < query.rows ? clamp_to_int(visits.first_visible[query.first + row] -
                                                 visits.chunk_begin - query.first)
                                  : INT_MAX;
}

// The rows [begin, end) of a tile of queries that a warp owns.
struct WarpRows {
  int begin, end;
  // Whether some, or all, of the rows see some, or all, of kKeys keys.
  template <int kKeys>
  __device__ __forceinline__ bool see_any(const int* positions, const int* first) const {
    return begin < end && positions[0] < end && positions[kKeys - 1] >= first[begin];
  }
  template <int kKeys>
  __device__ __forceinline__ bool see_all(const int* positions, const int* first) const {
    return positions[kKeys - 1] <= begin && positions[0] >= first[end - 1];
  }
};

// -infinity where a query (row) does not see a key (column). Row 0 of s is `row` of the tile.
template <int kM, int kN>
__device__ __forceinline__ void mask_scores(const int* positions, const int* first, int row,
                                            float (&s)[kM][kN][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + m * 16 + half * 8 + lane / 4, begin = first[query];
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int position = positions[n * 8 + lane % 4 * 2 + i];
          const bool seen = (position >= begin) & (position <= query);
          s[m][n][2 * half + i] = seen ? s[m][n][2 * half + i] : -INFINITY;
        }
    }
}

// Writes the first `rows` rows of x, each times its factor, as BF16 to rows `stride` apart. They go
// through `tile`, the warp's own kM * 16 rows of shared memory, so that writes are 16 bytes wide.
template <int kC, int kM>
__device__ __forceinline__ void store_rows(const float (&x)[kM][kC / 8][4],
                                           const float (&factor)[kM][2], std::byte* tile, bf16* to,
                                           std::int64_t stride, int rows, int C) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kC / 8; ++n)
        *reinterpret_cast<std::uint32_t*>(tile + Tile<kC>::offset(m * 16 + half * 8 + lane / 4, n) +
                                          lane % 4 * 4) =
            pack_bf16(x[m][n][2 * half] * factor[m][half], x[m][n][2 * half + 1] * factor[m][half]);
  __syncwarp();
#pragma unroll 4
  for (int i = lane; i < kM * 16 * Tile<kC>::kPieces; i += 32) {
    const int row = i / Tile<kC>::kPieces, piece = i % Tile<kC>::kPieces;
    if (row < rows && piece * 8 < C)
      *reinterpret_cast<uint4*>(to + row * stride + piece * 8) =
          *reinterpret_cast<const uint4*>(tile + Tile<kC>::offset(row, piece));
  }
}

// ---- on the host

inline AttentionSizes attention_sizes(const ConstView& q_THC, const PagesView& kv, float scale) {
  LS_CHECK(kv.head_size % 8 == 0 && kv.dtype == DType::kBF16, "heads of {}, pages of {}",
           kv.head_size, name_of(kv.dtype));
  LS_CHECK(scale > 0, "scale {}", scale);  // the largest product must be the largest score
  LS_CHECK(aligned({q_THC.data(), kv.base}) && kv.page_bytes % 16 == 0, "pages of {} bytes",
           kv.page_bytes);
  return {q_THC.dim(0),
          static_cast<int>(q_THC.dim(1)),
          static_cast<int>(kv.kv_heads),
          static_cast<int>(kv.head_size),
          static_cast<int>(kv.page_tokens),
          scale};
}

// Calls f(std::integral_constant<int, kC>).
template <class F>
void dispatch_head_size(int head_size, const F& f) {
  if (head_size <= 64)
    f(std::integral_constant<int, 64>{});
  else if (head_size <= 96)
    f(std::integral_constant<int, 96>{});
  else if (head_size <= 128)
    f(std::integral_constant<int, 128>{});
  else
    f(std::integral_constant<int, 256>{});
}

template <class Kernel, class... Args>
void launch_attention(Kernel kernel, std::int64_t blocks, int shared_bytes, cudaStream_t stream,
                      const Args&... args) {
  LS_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  kernel<<<grid_size(blocks), kAttentionThreads, static_cast<std::size_t>(shared_bytes), stream>>>(
      args...);
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
