// Pages in 8 bits on a GPU, bound by the memory's bandwidth. The bits are those of the CPU: every
// code and scale comes from the functions of tensor/page_codes.h, and no product that is rounded is
// followed by a sum that it could be fused with.
//
// A team of lanes has a row of C elements. On the fast path it is 8 lanes, and each holds its part
// of the row in registers, in pieces of N neighbours (16 bytes of the wide page): a piece of all
// lanes is 128 neighbouring bytes. Other rows (C is odd, or large) are read twice, by a warp each.
#include "ops/page_codes.h"

#include <algorithm>
#include <array>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"
#include "tensor/page_codes.h"
#include "tensor/stochastic_round.h"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct PagePlace {
  std::int32_t page, coded_slot, wide_slot;
};

// Two pools with pages of the same shape, and which tokens count.
struct PagePools {
  std::byte *coded, *wide;
  std::int64_t coded_bytes, wide_bytes;  // of a page
  std::int64_t page_tokens, first_token, end_token;
  unsigned token_rows;  // 2 K
  unsigned head_size;   // C
};

// How a kernel is compiled. kPieces 0: any number of pieces, which are not held.
template <DType kCodeType, class WideElement, int kWidth, int kTeam, int kPieceCount>
struct RowForm {
  static constexpr DType kCode = kCodeType;
  using E = WideElement;
  static constexpr int N = kWidth, kLanes = kTeam, kPieces = kPieceCount;
  static constexpr int kHeld = std::max(kPieces, 1);
  static constexpr int kBlockRows = kThreads / kLanes;
};

// N codes, packed as in memory.
template <int N>
struct PackedCodes {
  static constexpr int kWords = (N + 3) / 4;
  std::uint32_t words[kWords];

  static __device__ __forceinline__ PackedCodes load(const std::uint8_t* from) {
    PackedCodes p;
    if constexpr (N == 1) {
      p.words[0] = *from;
    } else if constexpr (N == 4) {
      p.words[0] = *reinterpret_cast<const std::uint32_t*>(from);
    } else {
      static_assert(N == 8);
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      p.words[0] = v.x, p.words[1] = v.y;
    }
    return p;
  }
  __device__ __forceinline__ void store(std::uint8_t* to) const {
    if constexpr (N == 1) {
      *to = static_cast<std::uint8_t>(words[0]);
    } else if constexpr (N == 4) {
      *reinterpret_cast<std::uint32_t*>(to) = words[0];
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    }
  }
  __device__ __forceinline__ std::uint8_t get(int i) const {
    return static_cast<std::uint8_t>(words[i / 4] >> (i % 4 * 8));
  }
  __device__ __forceinline__ void set(int i, std::uint8_t code) {
    const std::uint32_t placed = std::uint32_t{code} << (i % 4 * 8);
    words[i / 4] = i % 4 == 0 ? placed : words[i / 4] | placed;
  }
};

// The row of the calling thread's team: block row blockIdx.x, page blockIdx.y.
template <class Form>
class TeamRow {
 public:
  using E = typename Form::E;

  __device__ TeamRow(const PagePools& pools, const PagePlace* places)
      : place_(places[blockIdx.y]),
        row_(blockIdx.x * Form::kBlockRows + threadIdx.x / Form::kLanes),
        rows_(static_cast<unsigned>(pools.page_tokens) * pools.token_rows),
        C_(pools.head_size) {
    std::byte* const coded = pools.coded + place_.coded_slot * pools.coded_bytes;
    codes = reinterpret_cast<std::uint8_t*>(coded) + std::int64_t{row_} * C_;
    scale = reinterpret_cast<bf16*>(coded + std::int64_t{rows_} * C_) + row_;
    wide = reinterpret_cast<E*>(pools.wide + place_.wide_slot * pools.wide_bytes) +
           std::int64_t{row_} * C_;
  }

  std::uint8_t* codes;
  bf16* scale;
  E* wide;

  __device__ bool exists() const { return row_ < rows_; }
  // Whether the row's token is in [first_token, end_token).
  __device__ bool counts(const PagePools& pools) const {
    const std::int64_t first = place_.page * pools.page_tokens;
    return exists() && row_ >= (pools.first_token - first) * pools.token_rows &&
           row_ < (pools.end_token - first) * pools.token_rows;
  }
  __device__ unsigned row() const { return row_; }
  __device__ std::int64_t page() const { return place_.page; }
  __device__ bool leads() const { return threadIdx.x % Form::kLanes == 0; }

  // Calls f(piece in registers, its first element) for the lane's pieces.
  template <class F>
  __device__ __forceinline__ void for_pieces(const F& f) const {
    const unsigned lane = threadIdx.x % Form::kLanes;
    if constexpr (Form::kPieces > 0) {
#pragma unroll
      for (int j = 0; j < Form::kPieces; ++j) {
        const unsigned c = (j * Form::kLanes + lane) * Form::N;
        if (c < C_) f(j, c);
      }
    } else {
      for (unsigned c = lane * Form::N; c < C_; c += Form::kLanes * Form::N) f(0, c);
    }
  }

 private:
  PagePlace place_;
  unsigned row_, rows_, C_;
};

// Over a team; all lanes of the warp take part.
template <int kLanes>
__device__ __forceinline__ std::uint32_t lanes_max(std::uint32_t x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    x = max(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

__device__ __forceinline__ std::uint32_t magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

template <class Form>
__global__ void __launch_bounds__(kThreads)
    widen_pages_kernel(PagePools pools, const PagePlace* places, bool add) {
  constexpr int N = Form::N;
  const TeamRow<Form> row(pools, places);
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
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = code_value(Form::kCode, codes[j].get(i)) * scale;
    }
    store_floats<N>(x, row.wide + c);
  });
}

template <class Form>
__global__ void __launch_bounds__(kThreads)
    narrow_pages_kernel(PagePools pools, const PagePlace* places) {
  constexpr int N = Form::N;
  const TeamRow<Form> row(pools, places);
  const bool counts = row.counts(pools);
  float x[Form::kHeld][N];
  std::uint32_t most = 0;
  if (counts)
    row.for_pieces([&](int j, unsigned c) {
      load_floats<N>(row.wide + c, x[j]);
#pragma unroll
      for (int i = 0; i < N; ++i) most = max(most, magnitude_bits(x[j][i]));
    });
  most = lanes_max<Form::kLanes>(most);
  if (!counts) return;
  const bf16 scale = row_scale(Form::kCode, most);
  const float inverse = inverse_scale(scale);
  row.for_pieces([&](int j, unsigned c) {
    if constexpr (Form::kPieces == 0) load_floats<N>(row.wide + c, x[j]);
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
  const TeamRow<Form> row(pools, places);
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
  const bf16 scale = row_scale(Form::kCode, most);
  const float inverse = inverse_scale(scale);
  const unsigned token = row.row() / pools.token_rows,
                 first = (row.row() - token * pools.token_rows) * pools.head_size;
  const RowRounding random(key, row.page() * pools.page_tokens + token);
  row.for_pieces([&](int j, unsigned c) {
    if constexpr (Form::kPieces == 0) load(j, c);
    PackedCodes<N> codes;
    const auto set = [&](int i, std::uint32_t bits) {
      codes.set(i, random_code(Form::kCode, scaled_element(x[j][i], inverse), bits));
    };
    if constexpr (N == 1) {
      set(0, random.bits_of(first + c));
    } else {
#pragma unroll
      for (int i = 0; i < N; i += 2) {
        const std::uint32_t bits = random.bits_of_pair((first + c + i) / 2);
        set(i, bits & 0xffffu);
        set(i + 1, bits >> 16);
      }
    }
    codes.store(row.codes + c);
  });
  if (row.leads()) *row.scale = scale;
}

// ---- on the host

// Calls launch(a RowForm) for the pools' types and row size.
template <class E, DType kCode, class F>
void with_row_form(const PagePools& pools, const F& launch) {
  constexpr int N = vector_width<E>;
  constexpr int kMostLane = 256 / 8;  // elements of a row that a lane holds at most
  const unsigned C = pools.head_size;
  if (C % N != 0 || C > 256 || !aligned({pools.coded, pools.wide}) || pools.coded_bytes % N != 0 ||
      pools.wide_bytes % 16 != 0)
    return launch(RowForm<kCode, E, 1, 32, 0>{});
  if (C <= 64) return launch(RowForm<kCode, E, N, 8, kMostLane / 4 / N>{});
  if (C <= 128) return launch(RowForm<kCode, E, N, 8, kMostLane / 2 / N>{});
  launch(RowForm<kCode, E, N, 8, kMostLane / N>{});
}

template <class E, class F>
void with_form(DType code, const PagePools& pools, const F& launch) {
  if (code == DType::kI8) return with_row_form<E, DType::kI8>(pools, launch);
  with_row_form<E, DType::kF8E4M3>(pools, launch);
}

PagePools pools_of(const PagesView& codes, const PagesView& wide, std::int64_t first_token,
                   std::int64_t end_token) {
  return {codes.base,
          wide.base,
          codes.page_bytes,
          wide.page_bytes,
          codes.page_tokens,
          first_token,
          end_token,
          static_cast<unsigned>(2 * codes.kv_heads),
          static_cast<unsigned>(codes.head_size)};
}

template <class Form>
dim3 row_grid(const PagePools& pools, std::int64_t pages) {
  return dim3(grid_size(ceil_div(pools.page_tokens * pools.token_rows, Form::kBlockRows)),
              static_cast<unsigned>(pages));
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
          with_form<typename decltype(type)::type>(args.codes.dtype, pools, [&](auto form) {
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
