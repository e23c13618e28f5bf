// Summaries of pages. Means: one thread per two columns (one, if rows are odd) adds up its keys in
// their order. Outliers: a block per page and KV head.
#include <algorithm>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"
#include "ops/page_selection.h"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 64;
constexpr std::int64_t kLaunchPages = 64;

// The pages of one launch. As arguments of the kernel they need no copy to the device.
struct Pages {
  std::int32_t slot[kLaunchPages], first_row[kLaunchPages];
};

struct Sizes {
  std::int64_t page_bytes, row;  // row: elements of a token's keys
  int means, block;              // S, P / S
};

// A block's y is the page, its z the mean.
template <int N, class E>
__global__ void __launch_bounds__(kThreads)
    summarize_kernel(Sizes z, const __grid_constant__ Pages pages,
                     const std::byte* __restrict__ base, E* __restrict__ summaries_MKC) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (column >= z.row) return;
  const int page = static_cast<int>(blockIdx.y), mean = static_cast<int>(blockIdx.z);
  const int first = max(mean * z.block, pages.first_row[page]), end = (mean + 1) * z.block;
  const std::int64_t stride = 2 * z.row;
  const E* at =
      reinterpret_cast<const E*>(base + pages.slot[page] * z.page_bytes) + first * stride + column;
  float sum[N] = {};
  // Enough loads in flight that a page of 128 keys takes a few trips to memory.
#pragma unroll 32
  for (int t = first; t < end; ++t, at += stride) {
    float x[N];
    load_floats<N>(at, x);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += x[i];
  }
  const float inverse = first < end ? 1.0f / static_cast<float>(end - first) : 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] *= inverse;
  store_floats<N>(sum, summaries_MKC + (std::int64_t{page} * z.means + mean) * z.row + column);
}

constexpr int kOutlierThreads = 128;

// Threads are columns: the mean of the keys from `first` on whose distance is not negative.
template <class E>
__device__ void mean_of_keys(const E* keys, std::int64_t stride, int C, int first, int P, int count,
                             const float* distance_P, float* mean_C) {
  for (int c = static_cast<int>(threadIdx.x); c < C; c += kOutlierThreads) {
    float sum = 0.0f;
#pragma unroll 16
    for (int t = first; t < P; ++t) {
      float x[1];
      load_floats<1>(keys + t * stride + c, x);
      sum += distance_P[t] < 0.0f ? 0.0f : x[0];
    }
    mean_C[c] = sum / static_cast<float>(count);
  }
}

// A block's x is the page, its y the KV head. Shared memory: distances of P keys from the mean, -1
// once a key is chosen; the mean of C columns.
template <class E>
__global__ void __launch_bounds__(kOutlierThreads)
    outliers_kernel(Sizes z, int K, int C, int P, const __grid_constant__ Pages pages,
                    const std::byte* __restrict__ base, E* __restrict__ summaries_MKC) {
  extern __shared__ float shared_floats[];
  float *const distance_P = shared_floats, *const mean_C = shared_floats + P;
  const int page = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int first = pages.first_row[page], thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const std::int64_t stride = 2 * z.row;
  const E* const keys =
      reinterpret_cast<const E*>(base + pages.slot[page] * z.page_bytes) + std::int64_t{head} * C;
  E* const out = summaries_MKC + (std::int64_t{page} * z.means * K + head) * C;
  const auto store = [&](int s, int c, float x) {
    const float value[1] = {x};
    store_floats<1>(value, out + std::int64_t{s} * K * C + c);
  };

  for (int t = thread; t < P; t += kOutlierThreads) distance_P[t] = 0.0f;
  __syncthreads();
  mean_of_keys(keys, stride, C, first, P, P - first, distance_P, mean_C);
  __syncthreads();
  for (int t = first + warp; t < P; t += kOutlierThreads / 32) {
    float sum = 0.0f;
    for (int c = lane; c < C; c += 32) {
      float x[1];
      load_floats<1>(keys + t * stride + c, x);
      sum = fmaf(x[0] - mean_C[c], x[0] - mean_C[c], sum);
    }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0) distance_P[t] = sum;
  }
  __syncthreads();
  const int outliers = min(z.means - 1, P - first - 1);
  if (warp == 0) {
    for (int s = 0; s < outliers; ++s) {
      float most = -1.0f;
      int at = P;
      for (int t = first + lane; t < P; t += 32)
        if (distance_P[t] > most) most = distance_P[t], at = t;
      for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, offset);
        const int other_at = __shfl_xor_sync(0xffffffffu, at, offset);
        if (other > most || (other == most && other_at < at)) most = other, at = other_at;
      }
      __syncwarp();
      if (lane == 0) distance_P[at] = -1.0f;
      __syncwarp();
    }
  }
  __syncthreads();
  mean_of_keys(keys, stride, C, first, P, P - first - outliers, distance_P, mean_C);
  for (int c = thread; c < C; c += kOutlierThreads) {
    int s = 0;
    for (int t = first; t < P && s < outliers; ++t)
      if (distance_P[t] < 0.0f) {
        float x[1];
        load_floats<1>(keys + t * stride + c, x);
        store(s++, c, x[0]);
      }
    for (; s < z.means; ++s) store(s, c, mean_C[c]);
  }
}

}  // namespace

void summarize_pages(Stream& stream, const SummarizePages& a) {
  const std::int64_t row = a.kv.row_elements();
  LS_CHECK(a.means <= 65'535, "{} means", a.means);
  const Sizes z{a.kv.page_bytes, row, static_cast<int>(a.means),
                static_cast<int>(a.kv.page_tokens / a.means)};
  const bool pairs =
      row % 2 == 0 && a.kv.page_bytes % 8 == 0 && aligned({a.kv.base, a.summaries_MKC.data()});
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  for (std::int64_t begin = 0; begin < a.pages; begin += kLaunchPages) {
    const std::int64_t count = std::min(kLaunchPages, a.pages - begin);
    Pages pages{};
    for (std::int64_t i = 0; i < count; ++i) {
      pages.slot[i] = a.kv.slots[a.first_page + begin + i];
      pages.first_row[i] = a.first_row[begin + i];
      LS_CHECK(pages.slot[i] >= 0, "page {} does not exist", a.first_page + begin + i);
    }
    dispatch_activation(a.kv.dtype, [&](auto type) {
      using E = typename decltype(type)::type;
      const auto launch = [&](auto width) {
        constexpr int N = decltype(width)::value;
        const dim3 grid(grid_size(ceil_div(row, kThreads * N)), static_cast<unsigned>(count),
                        static_cast<unsigned>(a.means));
        summarize_kernel<N, E><<<grid, kThreads, 0, queue>>>(
            z, pages, a.kv.base, a.summaries_MKC.as<E>() + begin * a.means * row);
        LS_CUDA_LAUNCHED();
      };
      if (a.summary == Summary::kOutliers) {
        const auto P = static_cast<int>(a.kv.page_tokens), C = static_cast<int>(a.kv.head_size);
        const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(a.kv.kv_heads));
        outliers_kernel<E>
            <<<grid, kOutlierThreads, static_cast<std::size_t>(P + C) * sizeof(float), queue>>>(
                z, static_cast<int>(a.kv.kv_heads), C, P, pages, a.kv.base,
                a.summaries_MKC.as<E>() + begin * a.means * row);
        LS_CUDA_LAUNCHED();
      } else if (pairs)
        launch(std::integral_constant<int, 2>{});
      else
        launch(std::integral_constant<int, 1>{});
    });
  }
}

}  // namespace longstride::ops::cuda
