#include "ops/cuda/attention_merge.h"

#include <cmath>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ std::int64_t global_thread() {
  return blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
}

// Rows are (query, head), one per warp.
__global__ void __launch_bounds__(kThreads) merge_kernel(MergeAttention a) {
  const std::int64_t row = global_thread() / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t query = row / a.heads;
  if (query >= a.queries) return;
  const bool first = query >= a.queries_before;
  const std::int64_t stat = row % a.heads * a.tokens + query, C = a.head_size;
  const float theirs = a.partial_lse_HT[row % a.heads * a.partial_tokens + query],
              ours = first ? -INFINITY : a.lse_HT[stat];
  const float top = fmaxf(theirs, ours);
  const float sum = expf(theirs - top) + expf(ours - top), lse = top + logf(sum);
  const float new_share = expf(theirs - lse), old_share = first ? 0.0f : expf(ours - lse);
  for (std::int64_t c = lane * 4; c < C; c += 128) {
    float x[4], y[4] = {};
    load_floats<4>(a.partial_THC + row * C + c, x);
    if (!first) load_floats<4>(a.sum_THC + row * C + c, y);
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = x[i] * new_share + y[i] * old_share;
    if (a.out_THC != nullptr)
      store_floats<4>(y, a.out_THC + row * C + c);
    else
      store_floats<4>(y, a.sum_THC + row * C + c);
  }
  __syncwarp();
  if (lane == 0) a.lse_HT[stat] = lse;
}

__global__ void __launch_bounds__(kThreads) add_dq_kernel(AddDq a) {
  const std::int64_t i = global_thread() * 4;
  if (i >= a.elements) return;
  float x[4], y[4] = {};
  load_floats<4>(a.partial + i, x);
  if (i < a.elements_before) load_floats<4>(a.sum + i, y);
#pragma unroll
  for (int k = 0; k < 4; ++k) y[k] += x[k];
  if (a.out != nullptr)
    store_floats<4>(y, a.out + i);
  else
    store_floats<4>(y, a.sum + i);
}

__global__ void __launch_bounds__(kThreads) hide_kernel(HideQueries a) {
  // Not infinity, by which some kernels recognize a row without keys.
  constexpr float kHides = 1e30f;
  const std::int64_t i = global_thread(), query = i % a.to_tokens;
  if (i < a.to_tokens * a.heads)
    a.to_HQ[i] = query < a.queries ? a.lse_HT[i / a.to_tokens * a.tokens + query] : kHides;
}

cudaStream_t handle(Stream& stream) { return longstride::cuda::cuda_stream(stream).handle(); }

}  // namespace

void merge_attention(Stream& stream, const MergeAttention& a) {
  LS_CHECK(a.queries <= a.tokens && a.tokens <= a.partial_tokens, "{} of {} queries in {}",
           a.queries, a.tokens, a.partial_tokens);
  merge_kernel<<<grid_size(ceil_div(a.queries * a.heads * 32, kThreads)), kThreads, 0,
                 handle(stream)>>>(a);
  LS_CUDA_LAUNCHED();
}

void add_dq(Stream& stream, const AddDq& a) {
  add_dq_kernel<<<grid_size(ceil_div(a.elements, kThreads * 4)), kThreads, 0, handle(stream)>>>(a);
  LS_CUDA_LAUNCHED();
}

void hide_queries(Stream& stream, const HideQueries& a) {
  LS_CHECK(a.queries <= a.tokens && a.tokens <= a.to_tokens, "{} of {} queries in {}", a.queries,
           a.tokens, a.to_tokens);
  hide_kernel<<<grid_size(ceil_div(a.to_tokens * a.heads, kThreads)), kThreads, 0,
                handle(stream)>>>(a);
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
