// The loss head on CUDA: logits of a block of rows by cuBLASLt, in the type of x; one kernel turns
// each row into its loss and, in place, its gradient; two more products give dx and add to dW.
//   T tokens   V vocabulary   D hidden size   R rows of a block
#include "ops/loss_head.h"

#include <algorithm>
#include <cmath>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/scratch_size.h"
#include "ops/cuda/vector_access.cuh"
#include "ops/elementwise.h"

namespace longstride::ops::cuda {
namespace {

using longstride::cuda::cuda_stream;

constexpr int kThreads = 512;

// Elements from one row of logits to the next: rows begin at multiples of 16 bytes.
std::int64_t row_stride(std::int64_t vocabulary) { return ceil_div(vocabulary, 8) * 8; }

// The largest value, its first index, and the sum of exp(x - largest).
struct Softmax {
  float top;
  std::int32_t at;
  float sum;
};

__device__ __forceinline__ Softmax merge(const Softmax& a, const Softmax& b) {
  const bool first = a.top > b.top || (a.top == b.top && a.at < b.at);
  const float top = first ? a.top : b.top;
  if (top == -INFINITY) return {top, first ? a.at : b.at, 0.0f};
  return {top, first ? a.at : b.at, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}

__device__ __forceinline__ Softmax merge_lanes(Softmax mine) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Softmax other{__shfl_xor_sync(0xffffffffu, mine.top, offset),
                        __shfl_xor_sync(0xffffffffu, mine.at, offset),
                        __shfl_xor_sync(0xffffffffu, mine.sum, offset)};
    mine = merge(mine, other);
  }
  return mine;
}

// What multiplies the losses of the rows, in the gradient.
struct RowWeights {
  float scale;
  const float *weights, *earlier;  // of the first row; null: 1, and no ratios
  RatioClip clip;

  __device__ float of(std::int64_t row, float loss) const {
    if (weights == nullptr) return scale;
    const float weight = weights[row];
    if (earlier == nullptr) return scale * weight;
    return scale * clipped_weight(weight, expf(-loss - earlier[row]), clip);
  }
};

// One block per row: the loss, whether the prediction is correct, and if `wants_gradient`, logits =
// (p - onehot) * scale * weight.
template <class E>
__global__ void __launch_bounds__(kThreads)
    cross_entropy(E* __restrict__ logits_RV, std::int64_t stride, std::int32_t V,
                  const std::int32_t* __restrict__ targets_R, float* __restrict__ losses_R,
                  std::int32_t* __restrict__ correct_R, RowWeights factors, bool wants_gradient) {
  constexpr int N = vector_width<E>;
  __shared__ Softmax warps[kThreads / 32];
  __shared__ Softmax row;
  __shared__ float scale;
  E* logits = logits_RV + blockIdx.x * stride;
  const std::int32_t target = targets_R[blockIdx.x];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int32_t whole = V / N * N;
  if (target < 0) {
    if (threadIdx.x == 0) {
      losses_R[blockIdx.x] = 0;
      if (correct_R != nullptr) correct_R[blockIdx.x] = 0;
    }
    if (!wants_gradient) return;
    const float zero[N] = {};
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * N; i < whole; i += kThreads * N)
      store_floats<N>(zero, logits + i);
    for (std::int32_t i = whole + static_cast<std::int32_t>(threadIdx.x); i < V; i += kThreads) {
      const float one[1] = {};
      store_floats<1>(one, logits + i);
    }
    return;
  }

  Softmax mine{-INFINITY, V, 0.0f};
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * N; i < whole; i += kThreads * N) {
    float x[N];
    load_floats<N>(logits + i, x);
    float top = mine.top;
    std::int32_t at = mine.at;
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (x[k] > top) top = x[k], at = i + k;
    if (top == -INFINITY) continue;
    float sum = mine.sum * __expf(mine.top - top);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += __expf(x[k] - top);
    mine = {top, at, sum};
  }
  for (std::int32_t i = whole + static_cast<std::int32_t>(threadIdx.x); i < V; i += kThreads) {
    float x[1];
    load_floats<1>(logits + i, x);
    mine = merge(mine, Softmax{x[0], i, x[0] == -INFINITY ? 0.0f : 1.0f});
  }
  mine = merge_lanes(mine);
  if (lane == 0) warps[warp] = mine;
  __syncthreads();
  if (warp == 0) {
    mine = merge_lanes(lane < kThreads / 32 ? warps[lane] : Softmax{-INFINITY, V, 0.0f});
    if (lane == 0) {
      row = mine;
      float wanted[1];
      // A target outside the vocabulary makes the loss NaN, which the step reports.
      wanted[0] = __int_as_float(0x7fffffff);
      if (target < V) load_floats<1>(logits + target, wanted);
      const float loss = logf(mine.sum) + mine.top - wanted[0];
      losses_R[blockIdx.x] = loss;
      scale = factors.of(blockIdx.x, loss);
      if (correct_R != nullptr) correct_R[blockIdx.x] = mine.at == target ? 1 : 0;
    }
  }
  __syncthreads();
  if (!wants_gradient) return;
  const float top = row.top, factor = scale / row.sum;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x) * N; i < whole; i += kThreads * N) {
    float x[N];
    load_floats<N>(logits + i, x);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      x[k] = __expf(x[k] - top) * factor;
      if (i + k == target) x[k] -= scale;
    }
    store_floats<N>(x, logits + i);
  }
  for (std::int32_t i = whole + static_cast<std::int32_t>(threadIdx.x); i < V; i += kThreads) {
    float x[1];
    load_floats<1>(logits + i, x);
    x[0] = __expf(x[0] - top) * factor - (i == target ? scale : 0.0f);
    store_floats<1>(x, logits + i);
  }
}

const float* from(const ConstView& view, std::int64_t row) {
  return view.present() ? view.as<float>() + row : nullptr;
}

}  // namespace

std::int64_t loss_head_scratch_elements(const LossHeadShape& shape) {
  const bool converts = shape.w_VD.dtype() != shape.compute;
  return floats_for(shape.block_rows * row_stride(shape.w_VD.dim(0)), shape.compute) +
         (converts ? floats_for(shape.w_VD.elements(), shape.compute) : 0);
}

// Every block reads and writes dW once, so blocks are large: 2048 rows of 152K BF16 logits take 600
// MiB.
std::int64_t loss_head_block_rows(const std::int64_t& vocabulary) {
  LS_CHECK(vocabulary >= 1, "vocabulary {}", vocabulary);
  return 2048;
}

void loss_head(Stream& stream, const LossHead& args) {
  const std::int64_t T = args.x_TD.dim(0), V = args.w_VD.dim(0), D = args.w_VD.dim(1),
                     stride = row_stride(V);
  LS_CHECK(V <= std::numeric_limits<std::int32_t>::max() - kThreads * 8, "vocabulary {}", V);
  const DType compute = args.x_TD.dtype();
  float* logits = args.scratch.as<float>();
  ConstView weight = args.w_VD;
  if (weight.dtype() != compute) {
    const View converted(logits + floats_for(args.block_rows * stride, compute), compute,
                         weight.shape());
    cuda::convert(stream, {weight, converted});
    weight = converted;
  }
  for (std::int64_t begin = 0; begin < T; begin += args.block_rows) {
    const std::int64_t rows = std::min(args.block_rows, T - begin);
    const ConstView x = args.x_TD.rows(begin, rows);
    gemm(stream, {.shape = {.m = rows,
                            .n = V,
                            .k = D,
                            .trans_b = true,
                            .lda = D,
                            .ldb = D,
                            .ldd = stride,
                            .in = compute,
                            .out = compute},
                  .a = x.data(),
                  .b = weight.data(),
                  .d = logits});
    dispatch_activation(compute, [&](auto type) {
      using E = typename decltype(type)::type;
      cross_entropy<<<grid_size(rows), kThreads, 0, cuda_stream(stream).handle()>>>(
          reinterpret_cast<E*>(logits), stride, static_cast<std::int32_t>(V),
          args.targets_T.as<std::int32_t>() + begin, args.losses_T.as<float>() + begin,
          args.correct_T.present() ? args.correct_T.as<std::int32_t>() + begin : nullptr,
          RowWeights{args.scale, from(args.weights_T, begin), from(args.earlier_T, begin),
                     args.clip},
          args.dx_TD.present());
    });
    LS_CUDA_LAUNCHED();
    if (!args.dx_TD.present()) continue;
    gemm(stream, {.shape = {.m = rows,
                            .n = D,
                            .k = V,
                            .lda = stride,
                            .ldb = D,
                            .ldd = D,
                            .in = compute,
                            .out = compute},
                  .a = logits,
                  .b = weight.data(),
                  .d = args.dx_TD.rows(begin, rows).data()});
    if (!args.dw_VD.present()) continue;
    gemm(stream, {.shape = {.m = V,
                            .n = D,
                            .k = rows,
                            .trans_a = true,
                            .lda = stride,
                            .ldb = D,
                            .ldd = D,
                            .in = compute,
                            .out = DType::kF32},
                  .a = logits,
                  .b = x.data(),
                  .c = args.dw_VD.as<float>(),
                  .d = args.dw_VD.as<float>()});
  }
}

}  // namespace longstride::ops::cuda
