// Token embedding: the contract is in ops/embedding.h.
//
// A token that is out of the vocabulary gives a row of NaN, which the loss shows, and no gradient.
#include "ops/embedding.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"
#include "tensor/token_rows.h"

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

constexpr int kMostThreads = 256;  // of a block
constexpr int kResident = 1024;    // threads that an SM runs at once, by their registers
constexpr int kRowsAhead = 8;      // rows of dy under way at once

// A block has one token of each gridDim.x, and a piece of D, one vector of columns per thread. It
// adds a token's rows, in order, to the table's. Tokens of most rows come first: blocks that begin
// with many get those of fewest, and none where there are not enough for all.
template <class E, int N>
__global__ void __launch_bounds__(kMostThreads, kResident / kMostThreads)
    backward_kernel(const TokenGroup* __restrict__ groups, int G,
                    const std::int32_t* __restrict__ rows_T, const E* __restrict__ dy_TD,
                    std::int64_t V, std::int64_t D, float* __restrict__ dtable_VD) {
  const std::int64_t column = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (column >= D) return;
  const E* const from = dy_TD + column;
  float* const table = dtable_VD + column;
  const auto group_at = [&](int g) {
    const int4 four = reinterpret_cast<const int4*>(groups)[g];
    return TokenGroup{four.x, four.y, four.z, four.w};
  };
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  TokenGroup next = group_at(block);
  for (int g = block, after = 2 * blocks - 1 - block; g < G; g = after, after += blocks) {
    const TokenGroup group = next;
    if (after < G) next = group_at(after);  // on its way while this one's rows are
    if (group.token < 0 || group.token >= V) continue;
    float* const to = table + group.token * D;
    const std::int32_t* const rows = rows_T + group.begin;
    float sum[N];
    Packed<E, N> row[kRowsAhead];
    row[0] = Packed<E, N>::load(from + group.first * D);
    load_floats<N>(to, sum);
    for (int r = 0; r < group.count; r += kRowsAhead) {
      if (r > 0) row[0] = Packed<E, N>::load(from + rows[r] * D);
      if (r + 1 < group.count) {  // one test, not seven, for tokens that are there once
#pragma unroll
        for (int i = 1; i < kRowsAhead; ++i)
          if (r + i < group.count) row[i] = Packed<E, N>::load(from + rows[r + i] * D);
      }
#pragma unroll
      for (int i = 0; i < kRowsAhead; ++i) {
        if (r + i >= group.count) break;
        float values[N];
        row[i].unpack(values);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += values[j];
      }
    }
    store_floats<N>(sum, to);
  }
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& args) {
  LS_CHECK(args.table_VD.shape().rank() == 2 && args.tokens_T.shape().rank() == 1 &&
               args.y_TD.shape() == Shape({args.tokens_T.dim(0), args.table_VD.dim(1)}),
           "tokens {} table {} rows {}", args.tokens_T.shape().to_string(),
           args.table_VD.shape().to_string(), args.y_TD.shape().to_string());
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
  const std::int64_t T = args.dy_TD.dim(0), V = args.dtable_VD.dim(0), D = args.dy_TD.dim(1),
                     G = args.groups_G4.dim(0);
  check_shapes(args);
  const auto* groups = reinterpret_cast<const TokenGroup*>(args.groups_G4.as<std::int32_t>());
  LS_CHECK(aligned({groups}) && G <= T && T <= std::numeric_limits<std::int32_t>::max() / 2,
           "{} groups of {} rows at {}", G, T, fmt::ptr(groups));
  if (G * D == 0) return;
  const longstride::cuda::CudaStream& context = longstride::cuda::cuda_stream(stream);
  const std::int32_t* rows_T = args.rows_T.as<std::int32_t>();
  float* dtable_VD = args.dtable_VD.as<float>();
  dispatch_activation(args.dy_TD.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    constexpr int kWidth = vector_width<E>;
    const E* dy_TD = args.dy_TD.as<E>();
    const bool fast = D % kWidth == 0 && aligned({dy_TD, dtable_VD});
    // Pieces of equal size, none of whose threads is idle for want of columns.
    const std::int64_t items = ceil_div(D, fast ? kWidth : 1),
                       pieces = ceil_div(items, kMostThreads);
    LS_CHECK(pieces <= 65535, "rows of {}", D);
    const auto threads = static_cast<unsigned>(ceil_div(ceil_div(items, pieces), 32) * 32);
    // As many blocks as run at once, with equally many tokens.
    const std::int64_t resident = std::int64_t{context.multiprocessors()} * (kResident / threads);
    const dim3 blocks(grid_size(std::clamp(resident / pieces, std::int64_t{1}, G)),
                      static_cast<unsigned>(pieces));
    const auto kernel = fast ? backward_kernel<E, kWidth> : backward_kernel<E, 1>;
    kernel<<<blocks, threads, 0, context.handle()>>>(groups, static_cast<int>(G), rows_T, dy_TD, V,
                                                     D, dtable_VD);
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
