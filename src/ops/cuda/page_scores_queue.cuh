// How the warpgroups of a block of page scores work together: one copies tiles into a queue, the
// others take each as soon as it is there and multiply in turn, so that one multiplies while the
// others are busy with exponentials.
#pragma once

#include "ops/cuda/page_scores_lanes.cuh"
#include "ops/cuda/warpgroup_unit.cuh"

namespace longstride::ops::cuda {

// Shared memory of a block whose kGroupCount warpgroups compute, and one copies: what stays, then
// kStages tiles that stream, and two barriers of each.
template <int kGroupCount, int kOwnBytes, class StreamedTile>
struct QueueLayout {
  static constexpr int kGroups = kGroupCount, kWarps = kGroups * 4,
                       kThreads = kWarps * 32 + kWarpgroupThreads;
  static constexpr unsigned kStages = 4;
  using Streamed = StreamedTile;
  static constexpr int kStreamed = kOwnBytes, kBarriers = kStreamed + kStages * Streamed::kBytes,
                       kBytes = kBarriers + kStages * 16;
};

#ifdef LS_WARPGROUPS

// This thread's warp, which the compiler then knows to be the same in all lanes.
__device__ __forceinline__ int own_warp() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
}

// Tiles that the last four warps of a block fill and the others read, in order. All methods are
// called by whole warps.
template <class Layout>
class TileQueue {
 public:
  __device__ __forceinline__ explicit TileQueue(std::uint32_t shared) : shared_(shared) {}
  // Before anything else, by all warps.
  __device__ __forceinline__ void prepare() const {
    if (threadIdx.x < Layout::kStages) {
      shared_barrier_init(full(threadIdx.x), kWarpgroupThreads);
      shared_barrier_init(empty(threadIdx.x), Layout::kWarps);
    }
    __syncthreads();
  }

  __device__ __forceinline__ std::uint32_t tile(unsigned i) const {
    return shared_ + Layout::kStreamed + i % Layout::kStages * Layout::Streamed::kBytes;
  }

  // The warps that fill: wait until tile `i` may be overwritten; then end_tile after its copies.
  __device__ __forceinline__ void begin_tile(unsigned i) const {
    if (i >= Layout::kStages)
      shared_barrier_wait(empty(i % Layout::kStages), i / Layout::kStages - 1);
  }
  // Tile i is under way; shows the one before.
  __device__ __forceinline__ void end_tile(unsigned i) const {
    end_copies();
    wait_for_copies_but<1>();
    if (i > 0) show(i - 1);
  }
  __device__ __forceinline__ void end_last_tile(unsigned i) const {
    wait_for_copies();
    show(i);
  }

  // The others: wait until it is there; give it back when products have read it.
  __device__ __forceinline__ void take(unsigned i) const {
    shared_barrier_wait(full(i % Layout::kStages), i / Layout::kStages);
  }
  __device__ __forceinline__ void give_back(unsigned i) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared_barrier_arrive(empty(i % Layout::kStages));
  }

 private:
  __device__ __forceinline__ std::uint32_t full(unsigned stage) const {
    return shared_ + Layout::kBarriers + stage * 16;
  }
  __device__ __forceinline__ std::uint32_t empty(unsigned stage) const { return full(stage) + 8; }
  // Every thread says so of what it has copied.
  __device__ __forceinline__ void show(unsigned i) const {
    show_to_unit();
    shared_barrier_arrive(full(i % Layout::kStages));
  }

  std::uint32_t shared_;
};

// The warpgroups that compute start products one after the other, always in the same order.
template <class Layout>
class Turns {
 public:
  __device__ __forceinline__ explicit Turns(int group)
      : own_(kFirst + group), next_(kFirst + (group + 1) % Layout::kGroups) {}
  // Before the first turn.
  __device__ __forceinline__ void begin() const {
    if (next_ == kFirst) arrive();
  }
  __device__ __forceinline__ void take() const {
    asm volatile("bar.sync %0, %1;\n" ::"r"(own_), "n"(2 * kWarpgroupThreads) : "memory");
  }
  // After the last tile nobody waits for the last group.
  __device__ __forceinline__ void pass(bool last_tile) const {
    if (!last_tile || next_ != kFirst) arrive();
  }

 private:
  static constexpr int kFirst = 8;  // barriers below are warpgroup_barrier's
  __device__ __forceinline__ void arrive() const {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(next_), "n"(2 * kWarpgroupThreads) : "memory");
  }

  int own_, next_;
};

// Registers of the warpgroup that copies go to those that compute: 640 threads begin with 96 each.
template <class Layout>
__device__ __forceinline__ void give_registers() {
  if constexpr (Layout::kGroups == 4) shrink_registers<32>();
}
template <class Layout>
__device__ __forceinline__ void take_registers() {
  if constexpr (Layout::kGroups == 4) grow_registers<112>();
}

// The rows that this warp has begun to copy are there, and those of its warpgroup's other warps.
__device__ __forceinline__ void wait_for_own_rows(int warp) {
  wait_for_copies();
  show_to_unit();
  warpgroup_barrier(warp);
}

// A warpgroup copies a tile of means for the pages from `page` on, those before `end`: rows are
// columns of the products (MeanColumn).
template <class Layout, int kRows, int kS>
__device__ __forceinline__ void copy_mean_tile(const PageScoresWork& w, int kv_head, int page,
                                               int end, std::uint32_t to) {
  constexpr int kDown = kWarpgroupThreads / Layout::kPieces;
  static_assert(kDown % 8 == 0);
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  if (page + kRows / kS > end || (kS > 1 && page == 0 && w.hidden > 0)) {
    copy_score_rows<Layout, kRows, kWarpgroupThreads>(to, thread, w.C, [&](int c) {
      const MeanColumn<kS> column(c);
      const bool present = page + column.page < end;
      return SourceRow{mean_at<kS>(w, kv_head, present ? page + column.page : 0, column.s),
                       present};
    });
    return;
  }
  // All rows count: a thread's are as far apart as the first ones of all threads.
  const int row = thread / Layout::kPieces, piece = thread % Layout::kPieces;
  const bool inside = piece * 8 < w.C;
  const MeanColumn<kS> column(row);
  const bf16* const from =
      mean_at<kS>(w, kv_head, page + column.page, column.s) + (inside ? piece * 8 : 0);
  const int stride = w.K * w.C;
  to += static_cast<std::uint32_t>(Layout::offset(row, piece));
#pragma unroll
  for (int i = 0; i < kRows / kDown; ++i) {
    const MeanColumn<kS> at(i * kDown);
    copy_16_async(to + i * kDown * 128, from + std::int64_t{stride} * (at.page * kS + at.s),
                  inside);
  }
}

// Tiles of kRows rows of q, copied by a warpgroup.
template <class Layout, int kRows>
class QueryTiles {
 public:
  __device__ __forceinline__ explicit QueryTiles(const PageScoresWork& w)
      : more_(kDown % w.per_query),
        step_(kDown / w.per_query * w.query_stride + more_ * w.C),
        wrap_(w.query_stride - w.per_query * w.C) {}

  // Rows from `first` on, those before `end`.
  __device__ __forceinline__ void copy(const PageScoresWork& w, int kv_head, int first, int end,
                                       std::uint32_t to) const {
    const QueryRows rows(w, kv_head);
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    if (first + kRows > end) {
      copy_score_rows<Layout, kRows, kWarpgroupThreads>(to, thread, w.C, [&](int row) {
        const bool present = first + row < end;
        return SourceRow{rows.at(present ? first + row : first), present};
      });
      return;
    }
    const int row = thread / Layout::kPieces, piece = thread % Layout::kPieces;
    const bool inside = piece * 8 < w.C;
    const bf16* from = rows.at(first + row) + (inside ? piece * 8 : 0);
    int head = rows.head_of(first + row);
    to += static_cast<std::uint32_t>(Layout::offset(row, piece));
#pragma unroll
    for (int i = 0; i < kRows / kDown; ++i) {
      copy_16_async(to + i * kDown * 128, from, inside);
      from += step_;
      head += more_;
      if (head >= w.per_query) head -= w.per_query, from += wrap_;
    }
  }

 private:
  // A thread copies every kDown-th row.
  static constexpr int kDown = kWarpgroupThreads / Layout::kPieces;
  static_assert(kDown % 8 == 0);
  int more_;                  // heads from row to row, beside whole queries
  std::int64_t step_, wrap_;  // elements from row to row, and more of them into the next query
};

#endif

}  // namespace longstride::ops::cuda
