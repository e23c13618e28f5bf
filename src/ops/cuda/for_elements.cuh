// Elementwise work: one kernel template for every body. A body is plain data (pointers, factors)
// with
//   kWidth                    elements per access on the fast path
//   Inputs<N>                 its inputs for N neighbouring elements, packed
//   load<N>(i), store<N>(i, inputs)   reads; computes and writes elements [i, i + N)
// All reads of an element come before its writes, so outputs may be inputs.
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {

inline constexpr int kElementThreads = 256;

// A thread has kUnroll accesses in flight at once: enough bytes to hide the memory's latency.
template <int N, int kUnroll, class Body>
__global__ void __launch_bounds__(kElementThreads)
    for_elements_kernel(std::int64_t elements, Body body) {
  constexpr std::int64_t kSpan = kElementThreads * N;
  const std::int64_t begin = std::int64_t{blockIdx.x} * (kSpan * kUnroll);
  const std::int64_t first = begin + static_cast<std::int64_t>(threadIdx.x) * N;
  if (begin + kSpan * kUnroll <= elements) {
    typename Body::template Inputs<N> inputs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) inputs[u] = body.template load<N>(first + u * kSpan);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) body.template store<N>(first + u * kSpan, inputs[u]);
    return;
  }
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t i = first + u * kSpan;
    if (i + N <= elements) body.template store<N>(i, body.template load<N>(i));
  }
  if constexpr (N > 1) {
    const std::int64_t i = elements / N * N + threadIdx.x;
    if (i < elements) body.template store<1>(i, body.template load<1>(i));
  }
}

// `aligned`: whether every pointer of the body is 16-byte aligned.
template <int kUnroll, class Body>
void for_elements(Stream& stream, std::int64_t elements, bool aligned, const Body& body) {
  if (elements == 0) return;
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  const auto blocks = [&](int n) {
    return grid_size(ceil_div(elements, std::int64_t{kElementThreads} * n * kUnroll));
  };
  if (aligned) {
    for_elements_kernel<Body::kWidth, kUnroll>
        <<<blocks(Body::kWidth), kElementThreads, 0, queue>>>(elements, body);
  } else {
    for_elements_kernel<1, kUnroll><<<blocks(1), kElementThreads, 0, queue>>>(elements, body);
  }
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
