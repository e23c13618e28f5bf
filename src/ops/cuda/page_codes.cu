// Pages in 8 bits on a GPU, bound by the memory's bandwidth. The bits are those of the CPU: every
// code and scale comes from the functions of tensor/page_codes.h, and no product that is rounded is
// followed by a sum that it could be fused with.
#include "ops/page_codes.h"

#include <algorithm>
#include <array>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/page_code_rows.cuh"

namespace longstride::ops::cuda {
namespace {

using namespace page_rows;

template <class Form>
__global__ void __launch_bounds__(kThreads)
    widen_pages_kernel(PagePools pools, const PagePlace* places, bool add) {
  constexpr int N = Form::N;
  const TeamRow<Form> row(pools, places[blockIdx.y]);
  if (!row.exists()) return;
  float x[N];
  if (!row.counts(pools)) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = 0.0f;
    if (!add) row.for_pieces([&](int, unsigned c) { store_floats<N>(x, row.wide + c); });
    return;
  }
  const float scale = to_float(*row.scale);
  PackedCodes<N> codes[Form::kHeld];
  Packed<typename Form::E, N> sums[Form::kHeld];
  const auto load = [&](int j, unsigned c) {
    codes[j] = PackedCodes<N>::load(row.codes + c);
    if (add) sums[j] = Packed<typename Form::E, N>::load(row.wide + c);
  };
  if constexpr (Form::kPieces > 0) row.for_pieces(load);  // all are in flight at once
  row.for_pieces([&](int j, unsigned c) {
    if constexpr (Form::kPieces == 0) load(j, c);
    // The products are exact, so a fused multiply-add gives the same bits.
    if (add) {
      sums[j].unpack(x);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] += code_value(Form::kCode, codes[j].get(i)) * scale;
    } else {
      row.widen(codes[j], scale, c, x);
    }
    store_floats<N>(x, row.wide + c);
  });
}

// A thread per centre of a page: its column is added up token by token, neighbours together.
template <class E>
__global__ void __launch_bounds__(kThreads)
    centres_kernel(PagePools pools, const PagePlace* places) {
  const PagePlace place = places[blockIdx.y];
  const unsigned columns = pools.token_rows * pools.head_size,
                 column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= columns) return;
  const E* const wide =
      reinterpret_cast<const E*>(pools.wide + place.wide_slot * pools.wide_bytes) + column;
  const std::int64_t tokens = pools.tokens_of(place.page);
  float sum = 0.0f;
  for (std::int64_t t = 0; t < tokens; ++t) {
    float x[1];
    load_floats<1>(wide + t * columns, x);
    sum += x[0];
  }
  std::byte* const coded = pools.coded + place.coded_slot * pools.coded_bytes;
  reinterpret_cast<bf16*>(coded + pools.rows() * pools.head_size)[pools.rows() + column] =
      centre_of(sum, static_cast<float>(tokens));
}

// After the centres.
template <class Form>
__global__ void __launch_bounds__(kThreads)
    narrow_pages_kernel(PagePools pools, const PagePlace* places) {
  constexpr int N = Form::N;
  const TeamRow<Form> row(pools, places[blockIdx.y]);
  const bool counts = row.counts(pools);
  float x[Form::kHeld][N];
  const auto load = [&](int j, unsigned c) {
    float centres[N];
    load_floats<N>(row.wide + c, x[j]);
    load_floats<N>(row.centres + c, centres);
#pragma unroll
    for (int i = 0; i < N; ++i) x[j][i] -= centres[i];
  };
  std::uint32_t most = 0;
  if (counts)
    row.for_pieces([&](int j, unsigned c) {
      load(j, c);
#pragma unroll
      for (int i = 0; i < N; ++i) most = max(most, magnitude_bits(x[j][i]));
    });
  most = lanes_max<Form::kLanes>(most);
  if (!counts) return;
  const bf16 scale = row_scale(Form::kCode, most);
  const float inverse = inverse_scale(scale);
  row.for_pieces([&](int j, unsigned c) {
    if constexpr (Form::kPieces == 0) load(j, c);
    PackedCodes<N> codes;
#pragma unroll
    for (int i = 0; i < N; ++i)
      codes.set(i, nearest_code(Form::kCode, scaled_element(x[j][i], inverse)));
    codes.store(row.codes + c);
  });
  if (row.leads()) *row.scale = scale;
}

template <class Form>
__global__ void __launch_bounds__(kThreads)
    add_to_coded_kernel(PagePools pools, const PagePlace* places, std::uint64_t key) {
  constexpr int N = Form::N;
  const TeamRow<Form> row(pools, places[blockIdx.y]);
  const bool counts = row.counts(pools);
  float x[Form::kHeld][N];
  std::uint32_t most = 0, most_added = 0;
  // Every lane reads the row's scale before the team's maximum is known, so before it is replaced.
  const float before = counts ? to_float(*row.scale) : 0.0f;
  // x = codes * scale + sums. The products are exact, so a fused multiply-add gives the same bits.
  const auto load = [&](int j, unsigned c) {
    const auto codes = PackedCodes<N>::load(row.codes + c);
    load_floats<N>(row.wide + c, x[j]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      most_added = max(most_added, magnitude_bits(x[j][i]));
      x[j][i] += code_value(Form::kCode, codes.get(i)) * before;
      most = max(most, magnitude_bits(x[j][i]));
    }
  };
  if (counts) row.for_pieces(load);
  most = lanes_max<Form::kLanes>(most);
  most_added = lanes_max<Form::kLanes>(most_added);
  if (!counts || most_added == 0) return;
  store_rounded<Form>(row, pools, most, key, x, load);
}

// Calls f(places on the device, their number) for pages page_of(0), ..., page_of(count - 1).
template <class P, class F>
void for_places(longstride::cuda::CudaStream& stream, const PagesView& codes, const PagesView& wide,
                std::int64_t count, const P& page_of, const F& f) {
  std::array<PagePlace, 1024> places;
  const std::int64_t most = std::ssize(places);
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t n = std::min(most, count - first);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t page = page_of(first + i);
      places[static_cast<std::size_t>(i)] = {page, codes.slots[page], wide.slots[page]};
    }
    f(stream.upload(places.data(), n), n);
  }
}

}  // namespace

void widen_pages(Stream& stream, const WidenPages& args) {
  auto& queue = longstride::cuda::cuda_stream(stream);
  const PagePools pools = pools_of(args.codes, args.wide, 0, args.end_token);
  for_places(
      queue, args.codes, args.wide, std::ssize(args.pages),
      [&](std::int64_t i) { return args.pages[static_cast<std::size_t>(i)]; },
      [&](const PagePlace* places, std::int64_t n) {
        dispatch_activation(args.wide.dtype, [&](auto type) {
          with_form<typename decltype(type)::type>(args.codes.dtype, pools, [&](auto form) {
            using Form = decltype(form);
            widen_pages_kernel<Form><<<row_grid<Form>(pools, n), kThreads, 0, queue.handle()>>>(
                pools, places, args.add);
          });
        });
        LS_CUDA_LAUNCHED();
      });
}

void narrow_pages(Stream& stream, const NarrowPages& args) {
  if (args.first_token == args.end_token) return;
  auto& queue = longstride::cuda::cuda_stream(stream);
  const PagePools pools = pools_of(args.codes, args.wide, args.first_token, args.end_token);
  const std::int64_t P = args.codes.page_tokens, first = args.first_token / P;
  for_places(
      queue, args.codes, args.wide, ceil_div(args.end_token, P) - first,
      [&](std::int64_t i) { return static_cast<std::int32_t>(first + i); },
      [&](const PagePlace* places, std::int64_t n) {
        dispatch_activation(args.wide.dtype, [&](auto type) {
          using E = typename decltype(type)::type;
          const dim3 columns(
              grid_size(ceil_div(std::int64_t{pools.token_rows} * pools.head_size, kThreads)),
              static_cast<unsigned>(n));
          centres_kernel<E><<<columns, kThreads, 0, queue.handle()>>>(pools, places);
          LS_CUDA_LAUNCHED();
          with_form<E>(args.codes.dtype, pools, [&](auto form) {
            using Form = decltype(form);
            narrow_pages_kernel<Form>
                <<<row_grid<Form>(pools, n), kThreads, 0, queue.handle()>>>(pools, places);
          });
        });
        LS_CUDA_LAUNCHED();
      });
}

void add_to_coded_pages(Stream& stream, const AddToCodedPages& args) {
  auto& queue = longstride::cuda::cuda_stream(stream);
  const PagePools pools = pools_of(args.codes, args.sums, 0, args.end_token);
  for_places(
      queue, args.codes, args.sums, std::ssize(args.pages),
      [&](std::int64_t i) { return args.pages[static_cast<std::size_t>(i)]; },
      [&](const PagePlace* places, std::int64_t n) {
        with_form<float>(args.codes.dtype, pools, [&](auto form) {
          using Form = decltype(form);
          add_to_coded_kernel<Form><<<row_grid<Form>(pools, n), kThreads, 0, queue.handle()>>>(
              pools, places, args.rounding);
        });
        LS_CUDA_LAUNCHED();
      });
}

}  // namespace longstride::ops::cuda
