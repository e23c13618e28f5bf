#include "ops/cuda/attention_packed.h"

#include <cmath>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = vector_width<bf16>;

__device__ __forceinline__ std::int64_t global_thread() {
  return blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
}

// The packed row of row (query, head) of a tensor THC.
__device__ __forceinline__ std::int64_t packed_row(const PackedRows& s, std::int64_t query,
                                                   std::int64_t head) {
  const std::int64_t page = query / s.page_tokens;
  return (page * s.heads + head) * s.page_tokens + query - page * s.page_tokens;
}

__global__ void __launch_bounds__(kThreads)
    pack_kernel(PackedRows s, const bf16* __restrict__ x_THC, bf16* __restrict__ packed) {
  const std::int64_t i = global_thread() * kWide;
  if (i >= s.elements()) return;
  const std::int64_t row = i / s.head_size, query = row / s.heads;
  Packed<bf16, kWide>::load(x_THC + i).store(
      packed + packed_row(s, query, row - query * s.heads) * s.head_size + i - row * s.head_size);
}

__global__ void __launch_bounds__(kThreads)
    pack_statistics_kernel(PackedRows s, const float* __restrict__ x_HT,
                           float* __restrict__ packed) {
  const std::int64_t i = global_thread();
  if (i >= s.rows()) return;
  const std::int64_t head = i / s.tokens;
  packed[packed_row(s, i - head * s.tokens, head)] = x_HT[i];
}

// One row per warp.
__global__ void __launch_bounds__(kThreads) merge_packed_kernel(MergePacked a) {
  const PackedRows& s = a.shape;
  const std::int64_t row = global_thread() / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= s.rows()) return;
  const std::int64_t query = row / s.heads, head = row - query * s.heads, C = s.head_size;
  const std::int64_t stat = head * s.tokens + query, from = packed_row(s, query, head);
  const float theirs = a.partial_lse[from], ours = a.lse_HT[stat];
  const float top = fmaxf(theirs, ours);
  const float lse = top + logf(expf(theirs - top) + expf(ours - top));
  const float new_share = expf(theirs - lse), old_share = expf(ours - lse);
  for (std::int64_t c = lane * 4; c < C; c += 128) {
    const std::int64_t at = row * C + c;
    float x[4], y[4];
    load_floats<4>(a.partial + from * C + c, x);
    if (a.first)
      load_floats<4>(a.out_THC + at, y);
    else
      load_floats<4>(a.sum_THC + at, y);
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = x[i] * new_share + y[i] * old_share;
    if (a.last)
      store_floats<4>(y, a.out_THC + at);
    else
      store_floats<4>(y, a.sum_THC + at);
  }
  __syncwarp();
  if (lane == 0) a.lse_HT[stat] = lse;
}

__global__ void __launch_bounds__(kThreads) add_packed_dq_kernel(AddPackedDq a) {
  const PackedRows& s = a.shape;
  const std::int64_t i = global_thread() * kWide;
  if (i >= s.elements()) return;
  const std::int64_t row = i / s.head_size, query = row / s.heads;
  float x[kWide], y[kWide];
  load_floats<kWide>(
      a.partial + packed_row(s, query, row - query * s.heads) * s.head_size + i - row * s.head_size,
      x);
  if (a.first)
    load_floats<kWide>(a.dq_THC + i, y);
  else
    load_floats<kWide>(a.sum_THC + i, y);
#pragma unroll
  for (int k = 0; k < kWide; ++k) y[k] += x[k];
  if (a.last)
    store_floats<kWide>(y, a.dq_THC + i);
  else
    store_floats<kWide>(y, a.sum_THC + i);
}

cudaStream_t handle(Stream& stream) { return longstride::cuda::cuda_stream(stream).handle(); }

unsigned blocks_for(std::int64_t threads) { return grid_size(ceil_div(threads, kThreads)); }

}  // namespace

void pack_rows(Stream& stream, const PackedRows& s, const bf16* x_THC, bf16* packed) {
  pack_kernel<<<blocks_for(s.elements() / kWide), kThreads, 0, handle(stream)>>>(s, x_THC, packed);
  LS_CUDA_LAUNCHED();
}

void pack_statistics(Stream& stream, const PackedRows& s, const float* x_HT, float* packed) {
  pack_statistics_kernel<<<blocks_for(s.rows()), kThreads, 0, handle(stream)>>>(s, x_HT, packed);
  LS_CUDA_LAUNCHED();
}

void merge_packed(Stream& stream, const MergePacked& a) {
  merge_packed_kernel<<<blocks_for(a.shape.rows() * 32), kThreads, 0, handle(stream)>>>(a);
  LS_CUDA_LAUNCHED();
}

void add_packed_dq(Stream& stream, const AddPackedDq& a) {
  add_packed_dq_kernel<<<blocks_for(a.shape.elements() / kWide), kThreads, 0, handle(stream)>>>(a);
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
