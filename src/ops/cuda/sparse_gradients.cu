#include "ops/cuda/sparse_gradients.h"

#include <algorithm>
#include <span>

#include "device/cuda/check.h"
#include "ops/cuda/gradient_pages.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = vector_width<bf16>;

struct Copies {
  const SelectedPage* pages;
  const std::int32_t *places, *slots;
  const bf16* copies;
  std::byte* base;
  float* waiting;
  std::int64_t page_bytes, page_elements;
  std::uint64_t rounding;
  unsigned page_tokens, row_elements;  // row: of a token's keys and values
  unsigned parts;                      // blocks of a page
};

__device__ __forceinline__ void add(const Packed<bf16, kWide>& x, float (&sum)[kWide]) {
  float floats[kWide];
  x.unpack(floats);
#pragma unroll
  for (int k = 0; k < kWide; ++k) sum[k] += floats[k];
}

// Heads are multiples of kWide elements, so an access stays within one row.
template <class G>
__global__ void __launch_bounds__(kThreads) add_copies_kernel(Copies a) {
  constexpr int kAtOnce = 4;  // loads in flight, for bandwidth
  const unsigned number = blockIdx.x / a.parts, part = blockIdx.x - number * a.parts;
  const SelectedPage page = a.pages[number];
  auto* const to = reinterpret_cast<G*>(a.base + a.slots[page.page] * a.page_bytes);
  const std::int64_t waits_at = page.number * a.page_elements;
  for (std::int64_t i = (part * static_cast<std::int64_t>(kThreads) + threadIdx.x) * kWide;
       i < a.page_elements; i += static_cast<std::int64_t>(a.parts) * kThreads * kWide) {
    const auto copy = [&](int at) {
      return Packed<bf16, kWide>::load(a.copies + a.places[at] * a.page_elements + i);
    };
    float sum[kWide] = {};
    if (!page.first) load_floats<kWide>(a.waiting + waits_at + i, sum);
    int at = page.begin;
    for (; at + kAtOnce <= page.end; at += kAtOnce) {
      Packed<bf16, kWide> x[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) x[k] = copy(at + k);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) add(x[k], sum);
    }
    for (; at < page.end; ++at) add(copy(at), sum);
    if (!page.last) {
      store_floats<kWide>(sum, a.waiting + waits_at + i);
      continue;
    }
    float y[kWide];
    load_floats<kWide>(to + i, y);
#pragma unroll
    for (int k = 0; k < kWide; ++k) y[k] += sum[k];
    const auto element = static_cast<unsigned>(i), token = element / a.row_elements;
    const RowRounding row(a.rounding, page.page * std::int64_t{a.page_tokens} + token);
    store_gradient<kWide>(y, row, element - token * a.row_elements, to + i);
  }
}

}  // namespace

void add_copies(longstride::cuda::CudaStream& stream, const AddCopies& a) {
  const std::span<const SelectedPage> pages = a.ranks.pages();
  const std::span<const std::int32_t> places = a.ranks.places();
  const PagesView& to = a.to;
  const std::int64_t elements = to.page_tokens * to.token_stride();
  const std::int64_t parts = std::clamp<std::int64_t>(elements / (kThreads * kWide), 1, 64);
  const Copies copies{.pages = stream.upload(pages.data(), std::ssize(pages)),
                      .places = stream.upload(places.data(), std::ssize(places)),
                      .slots = stream.upload(to.slots, std::int64_t{pages.back().page} + 1),
                      .copies = a.copies,
                      .base = to.base,
                      .waiting = a.waiting,
                      .page_bytes = to.page_bytes,
                      .page_elements = elements,
                      .rounding = a.rounding,
                      .page_tokens = static_cast<unsigned>(to.page_tokens),
                      .row_elements = static_cast<unsigned>(to.token_stride()),
                      .parts = static_cast<unsigned>(parts)};
  dispatch_activation(to.dtype, [&](auto type) {
    using G = typename decltype(type)::type;
    add_copies_kernel<G>
        <<<grid_size(std::ssize(pages) * parts), kThreads, 0, stream.handle()>>>(copies);
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
