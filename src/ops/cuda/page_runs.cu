#include "ops/cuda/page_runs.h"

#include <algorithm>

#include "device/cuda/check.h"
#include "ops/cuda/gradient_pages.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = vector_width<bf16>;
constexpr std::int64_t kMostRows = 65535;  // of blocks in a grid

// Walks pages alongside a contiguous run that holds the same elements in the same order: one row of
// blocks (blockIdx.y) per page, the last page cut at `elements` of the run. Calls f(element, the
// page's number in the run, its index in the page, its index in the run).
template <class Page, class F>
__device__ void for_page_elements(std::byte* base, const std::int32_t* slots,
                                  std::int64_t page_bytes, std::int64_t page_elements,
                                  std::int64_t elements, const F& f) {
  for (std::int64_t page = blockIdx.y; page * page_elements < elements; page += gridDim.y) {
    auto* const at = reinterpret_cast<Page*>(base + slots[page] * page_bytes);
    const std::int64_t count = min(page_elements, elements - page * page_elements);
    for (std::int64_t i = (blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x) * kWide;
         i < count; i += static_cast<std::int64_t>(gridDim.x) * kThreads * kWide)
      f(at + i, page, i, page * page_elements + i);
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(std::byte* base, const std::int32_t* slots, std::int64_t page_bytes,
                  std::int64_t page_elements, std::int64_t elements, bf16* __restrict__ run) {
  for_page_elements<const bf16>(base, slots, page_bytes, page_elements, elements,
                                [&](const bf16* page, std::int64_t, std::int64_t, std::int64_t i) {
                                  Packed<bf16, kWide>::load(page).store(run + i);
                                });
}

// The tokens of a run, for the rounding of their rows.
struct RunRounding {
  std::uint64_t key;
  std::int64_t first_token;
  unsigned page_tokens, row_elements;  // of a page; of a token's keys and values
};

// pages += run. Heads are multiples of kWide elements, so an access stays within one row.
template <class G>
__global__ void __launch_bounds__(kThreads)
    add_to_pages_kernel(std::byte* base, const std::int32_t* slots, std::int64_t page_bytes,
                        std::int64_t page_elements, std::int64_t elements,
                        const bf16* __restrict__ run, RunRounding rounding) {
  for_page_elements<G>(base, slots, page_bytes, page_elements, elements,
                       [&](G* to, std::int64_t page, std::int64_t in_page, std::int64_t i) {
                         float x[kWide], y[kWide];
                         load_floats<kWide>(run + i, x);
                         load_floats<kWide>(to, y);
#pragma unroll
                         for (int k = 0; k < kWide; ++k) y[k] += x[k];
                         const auto element = static_cast<unsigned>(in_page),
                                    token = element / rounding.row_elements;
                         const RowRounding row(
                             rounding.key,
                             rounding.first_token + page * rounding.page_tokens + token);
                         store_gradient<kWide>(y, row, element - token * rounding.row_elements, to);
                       });
}

dim3 page_grid(std::int64_t pages, std::int64_t page_elements) {
  return dim3(static_cast<unsigned>(
                  std::clamp<std::int64_t>(page_elements / (kThreads * kWide * 4), 1, 64)),
              static_cast<unsigned>(std::min(pages, kMostRows)));
}

std::int64_t page_elements(const PagesView& pages) {
  return pages.page_tokens * pages.token_stride();
}

}  // namespace

bool contiguous(const PagesView& pages, std::int64_t first, std::int64_t end) {
  for (std::int64_t p = first; p + 1 < end; ++p)
    if (pages.slots[p + 1] != pages.slots[p] + 1) return false;
  return true;
}

void gather_pages(longstride::cuda::CudaStream& stream, const PagesView& pages,
                  std::span<const std::int32_t> slots, std::int64_t elements, bf16* run) {
  const std::int64_t count = std::ssize(slots);
  gather_kernel<<<page_grid(count, page_elements(pages)), kThreads, 0, stream.handle()>>>(
      pages.base, stream.upload(slots.data(), count), pages.page_bytes, page_elements(pages),
      elements, run);
  LS_CUDA_LAUNCHED();
}

void add_to_pages(longstride::cuda::CudaStream& stream, const PagesView& pages, std::int64_t first,
                  std::int64_t end, std::int64_t elements, const bf16* run,
                  std::uint64_t rounding) {
  const dim3 grid = page_grid(end - first, page_elements(pages));
  const std::int32_t* slots = stream.upload(pages.slots + first, end - first);
  dispatch_activation(pages.dtype, [&](auto type) {
    using G = typename decltype(type)::type;
    add_to_pages_kernel<G><<<grid, kThreads, 0, stream.handle()>>>(
        pages.base, slots, pages.page_bytes, page_elements(pages), elements, run,
        RunRounding{rounding, first * pages.page_tokens, static_cast<unsigned>(pages.page_tokens),
                    static_cast<unsigned>(pages.token_stride())});
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
