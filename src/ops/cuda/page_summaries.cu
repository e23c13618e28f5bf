// Means of the keys of pages: one thread per two columns (one, if rows are odd) adds up its keys in
// their order.
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
      if (pairs)
        launch(std::integral_constant<int, 2>{});
      else
        launch(std::integral_constant<int, 1>{});
    });
  }
}

}  // namespace longstride::ops::cuda
