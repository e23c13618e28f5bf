// Tiles of BF16 rows in shared memory and products of them by one warp.
//   kC columns of a tile   kM, kN, kK blocks of 16 rows or columns
//
// The 16-byte pieces of a row are permuted by the row's number, so that the 8 rows that a matrix
// unit reads at once are in different banks.
#pragma once

#include "ops/cuda/matrix_unit.cuh"

namespace longstride::ops::cuda {

template <int kC>
struct Tile {
  static_assert(kC % 32 == 0);
  static constexpr int kRowBytes = kC * 2, kBlockBytes = 16 * kRowBytes, kPieces = kC / 8;
  // Rows of 64k + 32 columns already alternate between two halves of the banks: permuting 4 pieces
  // is enough.
  static constexpr int kPermuted = kC % 64 == 0 ? 8 : 4;

  static constexpr __host__ __device__ int offset(int row, int piece) {
    return row * kRowBytes + (piece ^ (kPermuted == 8 ? row & 7 : row >> 1 & 3)) * 16;
  }
  // This lane's row of columns 0-15 of 16 rows, as load_fragment expects it.
  static constexpr __host__ __device__ int lane_offset(int lane) {
    return offset(lane & 15, lane >> 4);
  }
  // The same for columns [16 block, 16 block + 16): the permuted pieces are the low bits of an
  // offset, so moving along the row is one exclusive or.
  static constexpr __host__ __device__ int in_columns(int lane_offset, int block) {
    const int piece = 2 * block, low = piece % kPermuted;
    return (lane_offset ^ low * 16) + (piece - low) * 16;
  }
};

template <int kM, int kN>
__device__ __forceinline__ void clear(float (&x)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n) x[m][n][0] = x[m][n][1] = x[m][n][2] = x[m][n][3] = 0.0f;
}

// s = a b^T: dot products of the rows of two tiles.
template <int kC, int kM, int kN>
__device__ __forceinline__ void row_products(std::uint32_t a, std::uint32_t b, int lane_offset,
                                             float (&s)[kM][kN][4]) {
  clear(s);
#pragma unroll
  for (int k = 0; k < kC / 16; ++k) {
    const int at = Tile<kC>::in_columns(lane_offset, k);
    Fragment left[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) left[m] = load_fragment(a + m * Tile<kC>::kBlockBytes + at);
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) {
      const Fragment right = load_fragment(b + n * Tile<kC>::kBlockBytes + at);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(s[m][2 * n], left[m], right.quarters[0], right.quarters[2]);
        multiply_add(s[m][2 * n + 1], left[m], right.quarters[1], right.quarters[3]);
      }
    }
  }
}

// x += w b, for w of kK blocks of columns and a tile b of as many blocks of rows.
template <int kC, int kM, int kK>
__device__ __forceinline__ void add_weighted_rows(const Fragment (&w)[kM][kK], std::uint32_t b,
                                                  int lane_offset, float (&x)[kM][kC / 8][4]) {
#pragma unroll
  for (int k = 0; k < kK; ++k)
#pragma unroll
    for (int n = 0; n < kC / 16; ++n) {
      const Fragment right = load_fragment_transposed(b + k * Tile<kC>::kBlockBytes +
                                                      Tile<kC>::in_columns(lane_offset, n));
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply_add(x[m][2 * n], w[m][k], right.quarters[0], right.quarters[1]);
        multiply_add(x[m][2 * n + 1], w[m][k], right.quarters[2], right.quarters[3]);
      }
    }
}

// Products of one multiplication as the left operand of the next, rounded to BF16: the layouts
// agree, so nothing moves between lanes.
template <int kM, int kN>
__device__ __forceinline__ void round_to_fragments(const float (&s)[kM][kN][4],
                                                   Fragment (&w)[kM][kN / 2]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int k = 0; k < kN / 2; ++k)
      w[m][k] = {pack_bf16(s[m][2 * k][0], s[m][2 * k][1]),
                 pack_bf16(s[m][2 * k][2], s[m][2 * k][3]),
                 pack_bf16(s[m][2 * k + 1][0], s[m][2 * k + 1][1]),
                 pack_bf16(s[m][2 * k + 1][2], s[m][2 * k + 1][3])};
}

}  // namespace longstride::ops::cuda
