// The choice of pages: sums over query pages, the union by one block, then a block per list. The
// best values are found by a radix search for the smallest of them, as in ops/top_values.h, and
// written in order: every warp owns a run of consecutive values.
#include <algorithm>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"
#include "ops/page_selection.h"

namespace longstride::ops::cuda {
namespace {

constexpr int kSumThreads = 128, kUnionThreads = 1024, kListThreads = 512;
constexpr int kDigits = 2048;  // of 11 bits, 11 and 10

// The columns: forced [0, first) and [end, candidates), of the others `in_union` in the union and
// `in_list` in a list.
struct Columns {
  std::int32_t first_page, candidates, first, end, in_union, in_list;
  __device__ __forceinline__ std::int32_t forced() const { return candidates - (end - first); }
};

// Equal to the CPU's sums: one addition per query page, in their order.
__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(const float* __restrict__ scores_QN, std::int64_t stride, std::int64_t query_pages,
               std::int64_t candidates, float* __restrict__ sums_N) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (i >= candidates) return;
  float sum = 0.0f;
#pragma unroll 16
  for (std::int64_t q = 0; q < query_pages; ++q) sum = __fadd_rn(sum, scores_QN[q * stride + i]);
  sums_N[i] = sum;
}

// Which values belong to the best: those above `least`, and the first `ties` that equal it.
struct Threshold {
  std::uint32_t least;
  std::int32_t ties;
};

// The sum of `value` over the lanes, and in `before` that over lower lanes.
__device__ __forceinline__ std::int32_t scan_lanes(std::int32_t value, std::int32_t* before) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int32_t sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const std::int32_t other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  *before = sum - value;
  return __shfl_sync(0xffffffffu, sum, 31);
}

// The best values of n by a block of kThreads. key(i) is the value's bits, which have its order, as
// values are not negative. All threads call all members.
template <int kThreads>
class BestValues {
 public:
  struct Shared {
    std::int32_t histogram[kDigits];
    std::int32_t warps[2][32];
    std::uint32_t digit;
    std::int32_t left;
  };

  __device__ __forceinline__ explicit BestValues(Shared& shared) : s_(shared) {}

  // Calls take(rank, i) for the `count` best, rank counting up along i.
  template <class Key, class Take>
  __device__ __forceinline__ void take(std::int32_t n, std::int32_t count, const Key& key,
                                       const Take& take) {
    Threshold t{0, n};  // all of them
    if (count <= 0) t = {0xffffffffu, 0};
    if (count > 0 && count < n) t = find(n, count, key);
    take_above(n, t, key, take);
  }

 private:
  template <class Key>
  __device__ __forceinline__ Threshold find(std::int32_t n, std::int32_t count, const Key& key) {
    std::uint32_t least = 0;  // the high bits found so far
    std::int32_t left = count;
    for (int round = 0; round < 3; ++round) {
      const int shift = round == 0 ? 21 : round == 1 ? 10 : 0;
      const std::uint32_t digits = round == 2 ? 1024 : kDigits;
      // The bits above the digit; 64-bit, as there may be none.
      const int above = round == 0 ? 32 : round == 1 ? 21 : 10;
      for (int i = thread(); i < kDigits; i += kThreads) s_.histogram[i] = 0;
      __syncthreads();
#pragma unroll 4
      for (std::int32_t i = thread(); i < n; i += kThreads) {
        const std::uint64_t k = key(i);
        if (k >> above == least) atomicAdd(&s_.histogram[(k >> shift) & (digits - 1)], 1);
      }
      __syncthreads();
      find_digit(left);
      __syncthreads();
      least = least * digits + s_.digit;
      left = s_.left;
    }
    return {least, left};
  }

  // The largest digit such that `left` values have it or a larger one; of these, those that have it
  // remain to be found.
  __device__ __forceinline__ void find_digit(std::int32_t left) {
    constexpr int kOwn = kDigits / kThreads;
    // Digits descend along threads.
    const int top = kDigits - 1 - thread() * kOwn;
    std::int32_t own = 0, before = 0, warps_before = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own += s_.histogram[top - i];
    const std::int32_t sum = scan_lanes(own, &before);
    if (lane() == 0) s_.warps[0][warp()] = sum;
    __syncthreads();
    scan_lanes(lane() < kThreads / 32 ? s_.warps[0][lane()] : 0, &warps_before);
    before += __shfl_sync(0xffffffffu, warps_before, warp());
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const std::int32_t here = s_.histogram[top - i];
      if (before < left && left <= before + here) {
        s_.digit = static_cast<std::uint32_t>(top - i);
        s_.left = left - before;
      }
      before += here;
    }
  }

  template <class Key, class Take>
  __device__ __forceinline__ void take_above(std::int32_t n, const Threshold& t, const Key& key,
                                             const Take& take) {
    constexpr int kWarps = kThreads / 32;
    const std::int32_t run = (n + kThreads - 1) / kThreads * 32, begin = min(warp() * run, n),
                       end = min(begin + run, n);
    std::int32_t more = 0, equal = 0;
#pragma unroll 4
    for (std::int32_t i = begin + lane(); i < end; i += 32) {
      const std::uint32_t k = key(i);
      more += k > t.least ? 1 : 0, equal += k == t.least ? 1 : 0;
    }
    more = __reduce_add_sync(0xffffffffu, more), equal = __reduce_add_sync(0xffffffffu, equal);
    if (lane() == 0) s_.warps[0][warp()] = more, s_.warps[1][warp()] = equal;
    __syncthreads();
    std::int32_t more_before = 0, equal_before = 0;
    scan_lanes(lane() < kWarps ? s_.warps[0][lane()] : 0, &more_before);
    scan_lanes(lane() < kWarps ? s_.warps[1][lane()] : 0, &equal_before);
    more_before = __shfl_sync(0xffffffffu, more_before, warp());
    equal_before = __shfl_sync(0xffffffffu, equal_before, warp());
    const std::uint32_t lower = (1u << lane()) - 1;
    for (std::int32_t i = begin; i < end; i += 32) {
      const bool here = i + lane() < end;
      const std::uint32_t k = here ? key(i + lane()) : 0;
      const bool is_more = here && k > t.least, is_equal = here && k == t.least;
      const std::uint32_t mores = __ballot_sync(0xffffffffu, is_more),
                          equals = __ballot_sync(0xffffffffu, is_equal);
      const std::int32_t m = more_before + __popc(mores & lower),
                         e = equal_before + __popc(equals & lower);
      if (is_more || (is_equal && e < t.ties)) take(m + min(e, t.ties), i + lane());
      more_before += __popc(mores), equal_before += __popc(equals);
    }
  }

  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int lane() { return thread() % 32; }
  static __device__ __forceinline__ int warp() { return thread() / 32; }

  Shared& s_;
};

// Writes the forced pages before and after `middle` others, and -1 up to `size`.
template <int kThreads>
__device__ __forceinline__ void write_forced(const Columns& c, std::int32_t middle,
                                             std::int64_t size, std::int32_t* list) {
  const std::int32_t pages = c.forced() + middle;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    const std::int32_t at = static_cast<std::int32_t>(min(i, std::int64_t{pages}));
    if (at < c.first)
      list[i] = c.first_page + at;
    else if (at >= c.first + middle)
      list[i] = at < pages ? c.first_page + c.end + (at - c.first - middle) : -1;
  }
}

__global__ void __launch_bounds__(kUnionThreads)
    union_kernel(Columns c, const float* __restrict__ sums_N, std::int64_t size,
                 std::int32_t* __restrict__ union_U) {
  __shared__ BestValues<kUnionThreads>::Shared shared;
  BestValues<kUnionThreads>(shared).take(
      c.end - c.first, c.in_union,
      [&](std::int32_t i) { return __float_as_uint(sums_N[c.first + i]); },
      [&](std::int32_t rank, std::int32_t i) {
        union_U[c.first + rank] = c.first_page + c.first + i;
      });
  write_forced<kUnionThreads>(c, c.in_union, size, union_U);
}

// One block per list; those from query_pages on are empty.
__global__ void __launch_bounds__(kListThreads)
    list_kernel(Columns c, const float* __restrict__ scores_QN, std::int64_t stride,
                std::int64_t query_pages, const std::int32_t* __restrict__ union_U,
                std::int64_t size, std::int32_t* __restrict__ lists_QB) {
  __shared__ BestValues<kListThreads>::Shared shared;
  const std::int64_t q = blockIdx.x;
  std::int32_t* const list = lists_QB + q * size;
  if (q >= query_pages) {
    for (std::int64_t i = threadIdx.x; i < size; i += kListThreads) list[i] = -1;
    return;
  }
  const float* const scores = scores_QN + q * stride;
  const std::int32_t* const middle = union_U + c.first;
  BestValues<kListThreads>(shared).take(
      c.in_union, c.in_list,
      [&](std::int32_t i) { return __float_as_uint(scores[middle[i] - c.first_page]); },
      [&](std::int32_t rank, std::int32_t i) { list[c.first + rank] = middle[i]; });
  write_forced<kListThreads>(c, c.in_list, size, list);
}

}  // namespace

void choose_pages(Stream& stream, const ChoosePages& a) {
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  LS_CHECK(a.first_page + a.candidates <= kMost, "{} pages", a.first_page + a.candidates);
  // Without query pages there is nothing to choose for.
  const std::int64_t candidates = a.query_pages == 0 ? 0 : a.candidates;
  const std::int64_t first = std::min(a.sinks, candidates),
                     end = std::max(first, candidates - a.recent),
                     forced = candidates - (end - first),
                     in_union = std::min(end - first, a.union_pages - forced);
  const Columns c{static_cast<std::int32_t>(a.first_page),
                  static_cast<std::int32_t>(candidates),
                  static_cast<std::int32_t>(first),
                  static_cast<std::int32_t>(end),
                  static_cast<std::int32_t>(in_union),
                  static_cast<std::int32_t>(std::min(in_union, a.budget - forced))};
  const std::int64_t stride = a.scores_QN.dim(1);
  if (candidates > 0) {
    sum_kernel<<<grid_size(ceil_div(candidates, kSumThreads)), kSumThreads, 0, queue>>>(
        a.scores_QN.as<float>(), stride, a.query_pages, candidates, a.sums_N.as<float>());
    LS_CUDA_LAUNCHED();
  }
  union_kernel<<<1, kUnionThreads, 0, queue>>>(c, a.sums_N.as<float>(), a.union_U.elements(),
                                               a.union_U.as<std::int32_t>());
  LS_CUDA_LAUNCHED();
  if (a.lists_QB.elements() == 0) return;
  list_kernel<<<grid_size(a.lists_QB.dim(0)), kListThreads, 0, queue>>>(
      c, a.scores_QN.as<float>(), stride, a.query_pages, a.union_U.as<std::int32_t>(),
      a.lists_QB.dim(1), a.lists_QB.as<std::int32_t>());
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
