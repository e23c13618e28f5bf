// Token embedding: the contract is in ops/embedding.h.
//
// Tokens are known on the device alone. One that is out of the vocabulary gives a row of NaN, which
// the loss shows, and no gradient.
#include "ops/embedding.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

template <class W, class E, int N>
__global__ void __launch_bounds__(256)
    forward_kernel(const std::int32_t* __restrict__ tokens_T, const W* __restrict__ table_VD,
                   std::int64_t T, std::int64_t V, std::int64_t D, E* __restrict__ y_TD) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (t >= T) return;
  const std::int64_t token = tokens_T[t];
  const bool known = token >= 0 && token < V;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{threadIdx.x} * N; i < D; i += std::int64_t{blockDim.x} * N) {
    float values[N];
    if (known) {
      load_floats<N>(table_VD + token * D + i, values);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] = __uint_as_float(0x7fffffffu);
    }
    store_floats<N>(values, y_TD + t * D + i);
  }
}

constexpr int kMostThreads = 512;   // of a block
constexpr int kWords = 128;         // of a tile, with a bit for each of its tokens
constexpr int kTile = kWords * 32;  // tokens that a block looks at together
constexpr int kRowsAhead = 4;       // rows of dy under way at once

// Writes the places of the set bits in order and returns their number. For one warp.
__device__ __forceinline__ int list_bits(const unsigned (&words)[kWords], int lane,
                                         std::uint16_t (&places)[kTile]) {
  constexpr int kEach = kWords / 32;
  unsigned bits[kEach];
  int count = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    bits[i] = words[lane * kEach + i];
    count += __popc(bits[i]);
  }
  int end = count;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, end, offset);
    if (lane >= offset) end += before;
  }
  int at = end - count;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    for (unsigned left = bits[i]; left != 0; left &= left - 1)
      places[at++] =
          static_cast<std::uint16_t>((lane * kEach + i) * 32 + __ffs(static_cast<int>(left)) - 1);
  return __shfl_sync(0xffffffffu, end, 31);
}

// Sets the bits of those of `count` tokens that are `token`. For all threads of a block; each reads
// kEach tokens at a time.
template <int kEach>
__device__ __forceinline__ void find(const std::int32_t* __restrict__ tokens, int count,
                                     std::int32_t token, unsigned (&words)[kWords]) {
  for (int i = static_cast<int>(threadIdx.x) * kEach; i < count;
       i += static_cast<int>(blockDim.x) * kEach) {
    Packed<std::int32_t, kEach> seen;
    if (i + kEach <= count) {
      seen = Packed<std::int32_t, kEach>::load(tokens + i);
    } else {
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        seen.units[e] = static_cast<unsigned>(i + e < count ? tokens[i + e] : -1);
    }
    unsigned found = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (seen.units[e] == static_cast<unsigned>(token)) found |= 1u << e;
    if (found != 0) atomicOr(&words[i / 32], found << (i % 32));
  }
}

// One block per token t and piece of D, one vector of columns per thread. The block of a token's
// first occurrence adds the rows of all of them, in order, to the table's row; the others leave.
// Every block looks at all tokens, and 4096 blocks that do are limited by the instructions this
// takes: one comparison per token, and one warp lists what was found.
template <class E, int N>
__global__ void __launch_bounds__(kMostThreads, 3)
    backward_kernel(const std::int32_t* __restrict__ tokens_T, const E* __restrict__ dy_TD,
                    std::int64_t T, std::int64_t V, std::int64_t D, float* __restrict__ dtable_VD) {
  __shared__ unsigned matches[kWords];
  __shared__ std::uint16_t places[kTile];
  __shared__ int listed;
  const std::int64_t t = blockIdx.x;
  const std::int32_t token = tokens_T[t];
  if (token < 0 || token >= V) return;
  const int thread = static_cast<int>(threadIdx.x);
  // Registers decide how many blocks run at once: what is small is kept in 32 bits.
  const int column = static_cast<int>((blockIdx.y * blockDim.x + threadIdx.x) * N);
  const bool has_columns = column < D;
  Packed<E, N> row[kRowsAhead];
  float* const to = dtable_VD + token * D + column;
  // On their way while tokens are compared. Where this block leaves, another reads the same rows.
  if (has_columns) {
    row[0] = Packed<E, N>::load(dy_TD + t * D + column);
    prefetch(to);
  }

  for (std::int64_t tile = 0; tile < T; tile += kTile) {
    for (int word = thread; word < kWords; word += static_cast<int>(blockDim.x)) matches[word] = 0;
    __syncthreads();
    find<(N > 1 ? 4 : 1)>(tokens_T + tile, static_cast<int>(min(T - tile, std::int64_t{kTile})),
                          token, matches);
    __syncthreads();
    if (thread < 32) {
      const int all = list_bits(matches, thread, places);
      if (thread == 0) listed = all;
    }
    __syncthreads();
    const int rows = listed;
    if (rows == 0) continue;
    if (tile + places[0] < t) return;  // not the first occurrence
    if (!has_columns) continue;
    const bool has_first = tile <= t;
    float sum[N];
    load_floats<N>(to, sum);
    const E* from = dy_TD + tile * D + column;
    for (int k = 0; k < rows; k += kRowsAhead) {
      if (k > 0 || !has_first) row[0] = Packed<E, N>::load(from + places[k] * D);
      if (k + 1 < rows) {  // rarely
#pragma unroll
        for (int r = 1; r < kRowsAhead; ++r)
          if (k + r < rows) row[r] = Packed<E, N>::load(from + places[k + r] * D);
      }
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r) {
        if (k + r >= rows) break;
        float values[N];
        row[r].unpack(values);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += values[j];
      }
    }
    store_floats<N>(sum, to);
  }
}

void check(const ConstView& tokens_T, const ConstView& table_VD, const ConstView& y_TD) {
  LS_CHECK(table_VD.shape().rank() == 2 && tokens_T.shape().rank() == 1 &&
               y_TD.shape() == Shape({tokens_T.dim(0), table_VD.dim(1)}),
           "tokens {} table {} rows {}", tokens_T.shape().to_string(), table_VD.shape().to_string(),
           y_TD.shape().to_string());
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& args) {
  check(args.tokens_T, args.table_VD, args.y_TD);
  LS_CHECK(is_weight_type(args.table_VD.dtype()), "table {}", name_of(args.table_VD.dtype()));
  const std::int64_t T = args.y_TD.dim(0), V = args.table_VD.dim(0), D = args.y_TD.dim(1);
  if (T * D == 0) return;
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  const std::int32_t* tokens_T = args.tokens_T.as<std::int32_t>();
  dispatch_activation(args.y_TD.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    dispatch_weight(args.table_VD.dtype(), [&](auto weight) {
      using W = typename decltype(weight)::type;
      constexpr int kWidth = vector_width<E, W>;
      const W* table_VD = args.table_VD.as<W>();
      E* y_TD = args.y_TD.as<E>();
      const bool fast = D % kWidth == 0 && aligned({table_VD, y_TD});
      const dim3 threads = threads_for_rows(fast ? D / kWidth : D);
      const unsigned blocks = grid_size(ceil_div(T, threads.y));
      if (fast) {
        forward_kernel<W, E, kWidth>
            <<<blocks, threads, 0, queue>>>(tokens_T, table_VD, T, V, D, y_TD);
      } else {
        forward_kernel<W, E, 1><<<blocks, threads, 0, queue>>>(tokens_T, table_VD, T, V, D, y_TD);
      }
    });
  });
  LS_CUDA_LAUNCHED();
}

void embedding_backward(Stream& stream, const EmbeddingBackward& args) {
  check(args.tokens_T, args.dtable_VD, args.dy_TD);
  const std::int64_t T = args.dy_TD.dim(0), V = args.dtable_VD.dim(0), D = args.dy_TD.dim(1);
  if (T * D == 0) return;
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  const std::int32_t* tokens_T = args.tokens_T.as<std::int32_t>();
  float* dtable_VD = args.dtable_VD.as<float>();
  dispatch_activation(args.dy_TD.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    constexpr int kWidth = vector_width<E>;
    const E* dy_TD = args.dy_TD.as<E>();
    const bool fast = D % kWidth == 0 && aligned({tokens_T, dy_TD, dtable_VD});
    // Pieces of equal size, none of whose threads is idle for want of columns.
    const std::int64_t items = ceil_div(D, fast ? kWidth : 1),
                       pieces = ceil_div(items, kMostThreads);
    LS_CHECK(pieces <= 65535, "rows of {}", D);
    const auto threads = static_cast<unsigned>(ceil_div(ceil_div(items, pieces), 32) * 32);
    const dim3 blocks(grid_size(T), static_cast<unsigned>(pieces));
    if (fast) {
      backward_kernel<E, kWidth>
          <<<blocks, threads, 0, queue>>>(tokens_T, dy_TD, T, V, D, dtable_VD);
    } else {
      backward_kernel<E, 1><<<blocks, threads, 0, queue>>>(tokens_T, dy_TD, T, V, D, dtable_VD);
    }
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
