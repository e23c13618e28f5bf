#include "ops/cuda/sparse_codes.h"

#include <algorithm>

#include "device/cuda/check.h"
#include "ops/cuda/page_code_rows.cuh"

namespace longstride::ops::cuda {
namespace {

using namespace page_rows;

constexpr std::int64_t kMostPages = 65535;  // rows of blocks in a grid

// The wide pool is the run: a page per copy.
template <class Form>
__global__ void __launch_bounds__(kThreads)
    gather_codes_kernel(PagePools pools, const std::int32_t* slots) {
  constexpr int N = Form::N;
  const auto copy = static_cast<std::int32_t>(blockIdx.y);
  const TeamRow<Form> row(pools, {0, slots[copy], copy});
  if (!row.exists()) return;
  const float scale = to_float(*row.scale);
  PackedCodes<N> codes[Form::kHeld];
  row.for_pieces([&](int j, unsigned c) { codes[j] = PackedCodes<N>::load(row.codes + c); });
  row.for_pieces([&](int j, unsigned c) {
    float x[N];
    row.widen(codes[j], scale, c, x);
    store_floats<N>(x, row.wide + c);
  });
}

struct CodedCopies {
  const SelectedPage* pages;
  const std::int32_t* other_slots;  // by selected page; -1: it is coded
  const std::int32_t *places, *slots;
  float* waiting;
  std::byte* others;
  std::int64_t other_bytes;  // of a page
  std::uint64_t rounding;
};

// The wide pool is the copies' gradients.
template <class Form>
__global__ void __launch_bounds__(kThreads) add_copies_kernel(PagePools pools, CodedCopies a) {
  constexpr int N = Form::N, kHeld = Form::kHeld;
  constexpr int kAtOnce = std::max(1, 8 / kHeld);  // copies whose loads are in flight
  const SelectedPage page = a.pages[blockIdx.y];
  const TeamRow<Form> row(pools, {page.page, a.slots[page.page], 0});
  const bool exists = row.exists();
  const std::int64_t copy_elements = pools.wide_bytes / std::int64_t{sizeof(bf16)};
  float* const waits =
      a.waiting + page.number * copy_elements + std::int64_t{row.row()} * pools.head_size;
  float x[kHeld][N] = {};
  if (exists) {
    if (!page.first) row.for_pieces([&](int j, unsigned c) { load_floats<N>(waits + c, x[j]); });
    const auto add = [&](const Packed<bf16, N>(&copy)[kHeld]) {
      row.for_pieces([&](int j, unsigned) {
        float y[N];
        copy[j].unpack(y);
#pragma unroll
        for (int i = 0; i < N; ++i) x[j][i] += y[i];
      });
    };
    const auto load = [&](int at, Packed<bf16, N>(&copy)[kHeld]) {
      const bf16* const from = row.wide + a.places[at] * copy_elements;
      row.for_pieces([&](int j, unsigned c) { copy[j] = Packed<bf16, N>::load(from + c); });
    };
    int at = page.begin;
    for (; at + kAtOnce <= page.end; at += kAtOnce) {
      Packed<bf16, N> copies[kAtOnce][kHeld];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) load(at + k, copies[k]);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) add(copies[k]);
    }
    for (; at < page.end; ++at) {
      Packed<bf16, N> copy[kHeld];
      load(at, copy);
      add(copy);
    }
    if (!page.last) row.for_pieces([&](int j, unsigned c) { store_floats<N>(x[j], waits + c); });
  }
  if (!page.last) return;  // of all threads of the block
  if (const std::int32_t other = a.other_slots[blockIdx.y]; other >= 0) {
    if (!exists) return;
    float* const to = reinterpret_cast<float*>(a.others + other * a.other_bytes) +
                      std::int64_t{row.row()} * pools.head_size;
    row.for_pieces([&](int j, unsigned c) {
      float y[N];
      load_floats<N>(to + c, y);
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] += x[j][i];
      store_floats<N>(y, to + c);
    });
    return;
  }
  std::uint32_t most = 0, most_added = 0;
  // Every lane reads the row's scale before the team's maximum is known, so before it is replaced.
  const float before = exists ? to_float(*row.scale) : 0.0f;
  if (exists)
    row.for_pieces([&](int j, unsigned c) {
      const auto codes = PackedCodes<N>::load(row.codes + c);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        most_added = max(most_added, magnitude_bits(x[j][i]));
        x[j][i] += code_value(Form::kCode, codes.get(i)) * before;
        most = max(most, magnitude_bits(x[j][i]));
      }
    });
  most = lanes_max<Form::kLanes>(most);
  most_added = lanes_max<Form::kLanes>(most_added);
  if (!exists || most_added == 0) return;
  store_rounded<Form>(row, pools, most, a.rounding, x, [](int, unsigned) {});
}

// Pools of codes and of copies in BF16.
PagePools pools_with_copies(const PagesView& codes, const bf16* copies) {
  PagesView wide = codes;
  wide.base = reinterpret_cast<std::byte*>(const_cast<bf16*>(copies));
  wide.page_bytes = codes.page_tokens * codes.token_stride() * std::int64_t{sizeof(bf16)};
  return pools_of(codes, wide, 0, 0);
}

// with_form without the form for odd rows, which kernels here do not have.
template <class F>
void with_held_form(DType code, const PagePools& pools, const F& launch) {
  with_form<bf16>(code, pools, [&](auto form) {
    if constexpr (decltype(form)::kPieces > 0)
      launch(form);
    else
      LS_CHECK(false, "heads of {}", pools.head_size);
  });
}

}  // namespace

bool fits_sparse_codes(const PagesView& codes) {
  constexpr int N = vector_width<bf16>;
  return codes.head_size % N == 0 && codes.head_size <= 256 && aligned({codes.base}) &&
         fits_codes<N>(pools_of(codes, codes, 0, 0));
}

void gather_codes(longstride::cuda::CudaStream& stream, const PagesView& codes,
                  std::span<const std::int32_t> slots, bf16* run) {
  const std::int32_t* const all = stream.upload(slots.data(), std::ssize(slots));
  const std::int64_t page_elements = codes.page_tokens * codes.token_stride();
  for (std::int64_t first = 0; first < std::ssize(slots); first += kMostPages) {
    const PagePools pools = pools_with_copies(codes, run + first * page_elements);
    const std::int64_t count = std::min(kMostPages, std::ssize(slots) - first);
    with_held_form(codes.dtype, pools, [&](auto form) {
      using Form = decltype(form);
      gather_codes_kernel<Form>
          <<<row_grid<Form>(pools, count), kThreads, 0, stream.handle()>>>(pools, all + first);
    });
    LS_CUDA_LAUNCHED();
  }
}

void add_copies_to_codes(longstride::cuda::CudaStream& stream, const AddCopies& a,
                         std::span<const std::int32_t> coded, const PagesView& others) {
  const std::span<const SelectedPage> pages = a.ranks.pages();
  const std::span<const std::int32_t> places = a.ranks.places();
  const std::span<const std::int32_t> other_slots = a.ranks.slots_of_others(coded, others);
  const PagePools pools = pools_with_copies(a.to, a.copies);
  CodedCopies copies{.pages = stream.upload(pages.data(), std::ssize(pages)),
                     .other_slots = stream.upload(other_slots.data(), std::ssize(other_slots)),
                     .places = stream.upload(places.data(), std::ssize(places)),
                     .slots = stream.upload(a.to.slots, std::int64_t{pages.back().page} + 1),
                     .waiting = a.waiting,
                     .others = others.base,
                     .other_bytes = others.page_bytes,
                     .rounding = a.rounding};
  for (std::int64_t first = 0; first < std::ssize(pages); first += kMostPages) {
    const std::int64_t count = std::min(kMostPages, std::ssize(pages) - first);
    with_held_form(a.to.dtype, pools, [&](auto form) {
      using Form = decltype(form);
      add_copies_kernel<Form>
          <<<row_grid<Form>(pools, count), kThreads, 0, stream.handle()>>>(pools, copies);
    });
    LS_CUDA_LAUNCHED();
    copies.pages += count;
    copies.other_slots += count;
  }
}

}  // namespace longstride::ops::cuda
