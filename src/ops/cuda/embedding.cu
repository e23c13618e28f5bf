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

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kPasses = 4;                 // tokens that a thread compares at a time
constexpr int kTile = kThreads * kPasses;  // tokens that a block does
constexpr int kRowsAhead = 4;              // rows of dy under way at once

// True in every thread where one of tokens_T[0, t) is `token`.
__device__ __forceinline__ bool occurs_before(const std::int32_t* tokens_T, std::int64_t t,
                                              std::int32_t token) {
  for (std::int64_t tile = 0; tile < t; tile += kTile) {
    bool found = false;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::int64_t i = tile + pass * kThreads + threadIdx.x;
      found |= i < t && tokens_T[i] == token;
    }
    if (__syncthreads_or(found)) return true;
  }
  return false;
}

// One block per token t and piece of D, one vector of columns per thread. The block of a token's
// first occurrence adds the rows of all of them, in order, to the table's row; the others leave.
template <class E, int N>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const std::int32_t* __restrict__ tokens_T, const E* __restrict__ dy_TD,
                    std::int64_t T, std::int64_t V, std::int64_t D, float* __restrict__ dtable_VD) {
  __shared__ unsigned matches[kPasses * kWarps];  // a bit per token of the tile
  __shared__ int found[kTile];                    // the tile's matching tokens, in order
  const std::int64_t t = blockIdx.x;
  const std::int32_t token = tokens_T[t];
  if (token < 0 || token >= V || occurs_before(tokens_T, t, token)) return;

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const std::int64_t column = (std::int64_t{blockIdx.y} * kThreads + thread) * N;
  const bool has_columns = column < D;
  float* to = dtable_VD + token * D + column;
  float sum[N];
  if (has_columns) load_floats<N>(to, sum);

  for (std::int64_t tile = t; tile < T; tile += kTile) {
    bool any = false;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const std::int64_t i = tile + pass * kThreads + thread;
      const unsigned bits = __ballot_sync(0xffffffffu, i < T && tokens_T[i] == token);
      if (lane == 0) matches[pass * kWarps + warp] = bits;
      any |= bits != 0;
    }
    if (!__syncthreads_or(any)) continue;
    int count = 0;
#pragma unroll 1
    for (int word = 0; word < kPasses * kWarps; ++word) {
      const unsigned bits = matches[word];
      if (word % kWarps == warp && (bits >> lane & 1u) != 0)
        found[count + __popc(bits & ((1u << lane) - 1))] = word * 32 + lane;
      count += __popc(bits);
    }
    __syncthreads();
    if (!has_columns) continue;
    const E* rows = dy_TD + tile * D + column;
    int k = 0;
    for (; k + kRowsAhead <= count; k += kRowsAhead) {
      Packed<E, N> row[kRowsAhead];
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r) row[r] = Packed<E, N>::load(rows + found[k + r] * D);
#pragma unroll
      for (int r = 0; r < kRowsAhead; ++r) {
        float values[N];
        row[r].unpack(values);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += values[j];
      }
    }
    for (; k < count; ++k) {
      float values[N];
      load_floats<N>(rows + found[k] * D, values);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += values[j];
    }
  }
  if (has_columns) store_floats<N>(sum, to);
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
    const bool fast = D % kWidth == 0 && aligned({dy_TD, dtable_VD});
    const std::int64_t pieces = ceil_div(D, kThreads * (fast ? kWidth : 1));
    LS_CHECK(pieces <= 65535, "rows of {}", D);
    const dim3 blocks(grid_size(T), static_cast<unsigned>(pieces));
    if (fast) {
      backward_kernel<E, kWidth>
          <<<blocks, kThreads, 0, queue>>>(tokens_T, dy_TD, T, V, D, dtable_VD);
    } else {
      backward_kernel<E, 1><<<blocks, kThreads, 0, queue>>>(tokens_T, dy_TD, T, V, D, dtable_VD);
    }
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
