// Rows of coded pages in kernels: teams of lanes, packed codes, and how a kernel is compiled for a
// row size.
//
// A team of lanes has a row of C elements. On the fast path it is 8 lanes, and each holds its part
// of the row in registers, in pieces of N neighbours (16 bytes of the wide page): a piece of all
// lanes is 128 neighbouring bytes. Other rows (C is odd, or large) are read twice, by a warp each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cuda/vector_access.cuh"
#include "tensor/page_codes.h"
#include "tensor/pages_view.h"
#include "tensor/stochastic_round.h"

namespace longstride::ops::cuda::page_rows {

inline constexpr int kThreads = 256;

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
  bool centred;

  // Of a coded page.
  __host__ __device__ std::int64_t rows() const { return page_tokens * token_rows; }
  // How many tokens of a page are before end_token.
  __device__ std::int64_t tokens_of(std::int64_t page) const {
    const std::int64_t before = end_token - page * page_tokens;
    return before < page_tokens ? before : page_tokens;
  }
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

// The row of the calling thread's team, in block row blockIdx.x of a page.
template <class Form>
class TeamRow {
 public:
  using E = typename Form::E;

  __device__ TeamRow(const PagePools& pools, const PagePlace& place)
      : place_(place),
        row_(blockIdx.x * Form::kBlockRows + threadIdx.x / Form::kLanes),
        rows_(static_cast<unsigned>(pools.page_tokens) * pools.token_rows),
        C_(pools.head_size) {
    std::byte* const coded = pools.coded + place_.coded_slot * pools.coded_bytes;
    codes = reinterpret_cast<std::uint8_t*>(coded) + std::int64_t{row_} * C_;
    bf16* const scales = reinterpret_cast<bf16*>(coded + std::int64_t{rows_} * C_);
    scale = scales + row_;
    centres = pools.centred ? scales + rows_ + row_ % pools.token_rows * C_ : nullptr;
    wide = reinterpret_cast<E*>(pools.wide + place_.wide_slot * pools.wide_bytes) +
           std::int64_t{row_} * C_;
  }

  std::uint8_t* codes;
  bf16* scale;
  const bf16* centres;  // null if the page is not centred
  E* wide;

  // x = code * scale, plus the centre of element c + i if there is one. The products are exact, so
  // a fused multiply-add gives the same bits.
  __device__ __forceinline__ void widen(const PackedCodes<Form::N>& packed, float scale_of_row,
                                        unsigned c, float (&x)[Form::N]) const {
    constexpr int N = Form::N;
    if (centres == nullptr) {
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] = code_value(Form::kCode, packed.get(i)) * scale_of_row;
    } else {
      load_floats<N>(centres + c, x);
#pragma unroll
      for (int i = 0; i < N; ++i) x[i] += code_value(Form::kCode, packed.get(i)) * scale_of_row;
    }
  }

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

// The codes of a row of which every lane holds its pieces x, rounded stochastically, and its new
// scale. `most`: over the team. With kPieces 0, load(j, c) fills x[j] first.
template <class Form, class Row, class Load>
__device__ __forceinline__ void store_rounded(const Row& row, const PagePools& pools,
                                              std::uint32_t most, std::uint64_t key,
                                              float (&x)[Form::kHeld][Form::N], const Load& load) {
  constexpr int N = Form::N;
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

// Whether accesses to N codes, and to N centres, are aligned in every page.
template <int N>
bool fits_codes(const PagePools& pools) {
  constexpr std::int64_t kCentres = 2 * N;
  return pools.coded_bytes % (pools.centred ? kCentres : N) == 0 &&
         (!pools.centred || pools.rows() * (pools.head_size + 2) % kCentres == 0);
}

// Calls launch(a RowForm) for the pools' types and row size.
template <class E, DType kCode, class F>
void with_row_form(const PagePools& pools, const F& launch) {
  constexpr int N = vector_width<E>;
  constexpr int kMostLane = 256 / 8;  // elements of a row that a lane holds at most
  const unsigned C = pools.head_size;
  if (C % N != 0 || C > 256 || !aligned({pools.coded, pools.wide}) || !fits_codes<N>(pools) ||
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

inline PagePools pools_of(const PagesView& codes, const PagesView& wide, std::int64_t first_token,
                          std::int64_t end_token) {
  return {codes.base,
          wide.base,
          codes.page_bytes,
          wide.page_bytes,
          codes.page_tokens,
          first_token,
          end_token,
          static_cast<unsigned>(2 * codes.kv_heads),
          static_cast<unsigned>(codes.head_size),
          codes.centred};
}

template <class Form>
dim3 row_grid(const PagePools& pools, std::int64_t pages) {
  return dim3(grid_size(ceil_div(pools.rows(), Form::kBlockRows)), static_cast<unsigned>(pages));
}

}  // namespace longstride::ops::cuda::page_rows
