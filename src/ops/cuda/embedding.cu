// Token embedding, forward: the contract is in ops/embedding.h.
//
// A token outside the vocabulary gives a row of NaN, which shows in the loss.
#include "ops/embedding.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

template <class W, class E, int N>
__global__ void __launch_bounds__(256)
    forward_kernel(const std::int32_t* __restrict__ tokens_T, const W* __restrict__ table_VD,
                   std::int64_t T, std::int64_t V, std::int64_t D, float scale,
                   E* __restrict__ y_TD) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (t >= T) return;
  const std::int64_t token = tokens_T[t];
  const bool known = token >= 0 && token < V;
#pragma unroll 4
  for (std::int64_t i = std::int64_t{threadIdx.x} * N; i < D; i += std::int64_t{blockDim.x} * N) {
    float values[N];
    if (known) {
      load_floats<N>(table_VD + token * D + i, values);
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] *= scale;  // a product with 1 is exact
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] = __uint_as_float(0x7fffffffu);
    }
    store_floats<N>(values, y_TD + t * D + i);
  }
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& args) {
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
            <<<blocks, threads, 0, queue>>>(tokens_T, table_VD, T, V, D, args.scale, y_TD);
      } else {
        forward_kernel<W, E, 1>
            <<<blocks, threads, 0, queue>>>(tokens_T, table_VD, T, V, D, args.scale, y_TD);
      }
    });
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
