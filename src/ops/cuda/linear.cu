// Linear layers on CUDA: cuBLASLt products with the bias and the residual in their epilogue, weight
// gradients summed in place in F32, bias gradients by an ordered two-stage sum.
//   R rows   I inputs   O outputs   G groups of rows
#include "ops/linear.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/scratch_size.h"
#include "ops/cuda/vector_access.cuh"
#include "ops/elementwise.h"

namespace longstride::ops::cuda {
namespace {

using longstride::cuda::cuda_stream;

// Rows whose bias gradients one block adds: it determines the order of summation.
constexpr std::int64_t kGroupRows = 64;
constexpr int kThreads = 128;

std::int64_t groups_of(std::int64_t rows) { return ceil_div(rows, kGroupRows); }

// Divides scratch into parts, in F32 elements.
class Scratch {
 public:
  explicit Scratch(const View& scratch)
      : at_(scratch.present() ? scratch.as<float>() : nullptr),
        left_(scratch.present() ? scratch.elements() : 0) {}
  void* take(std::int64_t elements) {
    LS_CHECK(elements <= left_, "{} elements of scratch, {} left", elements, left_);
    left_ -= elements;
    at_ += elements;
    return at_ - elements;
  }

 private:
  float* at_;
  std::int64_t left_;
};

// The tensor in type t: itself, or converted into scratch.
ConstView as_type(Stream& stream, const ConstView& x, DType t, Scratch& scratch) {
  if (!x.present() || x.dtype() == t) return x;
  const View converted(scratch.take(floats_for(x.elements(), t)), t, x.shape());
  cuda::convert(stream, {x, converted});
  return converted;
}

// partial[g, o] = sum of dy over the rows of group g, in row order. N columns per thread.
template <int N, class E>
__global__ void column_sums(const E* __restrict__ dy_RO, std::int64_t rows, std::int64_t outputs,
                            float* __restrict__ partial_GO) {
  const std::int64_t column =
      (blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x) * N;
  if (column >= outputs) return;
  for (std::int64_t group = blockIdx.y; group * kGroupRows < rows; group += gridDim.y) {
    const std::int64_t end = min(rows, (group + 1) * kGroupRows);
    float sum[N] = {};
#pragma unroll 4
    for (std::int64_t r = group * kGroupRows; r < end; ++r) {
      float x[N];
      load_floats<N>(dy_RO + r * outputs + column, x);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += x[i];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) partial_GO[group * outputs + column + i] = sum[i];
  }
}

__global__ void add_groups(const float* __restrict__ partial_GO, std::int64_t groups,
                           std::int64_t outputs, float* __restrict__ db_O) {
  const std::int64_t column = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  if (column >= outputs) return;
  double sum = 0;
  for (std::int64_t g = 0; g < groups; ++g)
    sum += static_cast<double>(partial_GO[g * outputs + column]);
  db_O[column] += static_cast<float>(sum);
}

void bias_gradient(Stream& stream, const ConstView& dy_RO, const View& db_O, Scratch& scratch) {
  const std::int64_t R = dy_RO.dim(0), O = dy_RO.dim(1), groups = groups_of(R);
  if (R == 0 || O == 0) return;
  auto* partial = static_cast<float*>(scratch.take(groups * O));
  const cudaStream_t handle = cuda_stream(stream).handle();
  dispatch_activation(dy_RO.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    constexpr int kWide = vector_width<E>;
    const auto sum_columns = [&](auto width) {
      constexpr int N = decltype(width)::value;
      const dim3 grid(grid_size(ceil_div(O, kThreads * N)),
                      static_cast<unsigned>(std::min<std::int64_t>(groups, 65535)));
      column_sums<N><<<grid, kThreads, 0, handle>>>(dy_RO.as<E>(), R, O, partial);
    };
    if (O % kWide == 0 && aligned({dy_RO.data()}))
      sum_columns(std::integral_constant<int, kWide>{});
    else
      sum_columns(std::integral_constant<int, 1>{});
  });
  LS_CUDA_LAUNCHED();
  add_groups<<<grid_size(ceil_div(O, kThreads)), kThreads, 0, handle>>>(partial, groups, O,
                                                                        db_O.as<float>());
  LS_CUDA_LAUNCHED();
}

}  // namespace

std::int64_t linear_scratch_elements(const LinearShape& shape) {
  const std::int64_t O = shape.w_OI.dim(0);
  const bool converts = shape.w_OI.dtype() != shape.compute;
  return (converts ? floats_for(shape.w_OI.elements(), shape.compute) : 0) +
         std::max(floats_for(O, shape.compute), groups_of(shape.rows) * O);
}

void linear_forward(Stream& stream, const LinearForward& args) {
  const Shape &x = args.x_RI.shape(), &w = args.w_OI.shape();
  const DType compute = args.x_RI.dtype();
  Scratch scratch(args.scratch);
  const ConstView weight = as_type(stream, args.w_OI, compute, scratch),
                  bias = as_type(stream, args.b_O, compute, scratch);
  Gemm g;
  g.shape = {.m = x[0],
             .n = w[0],
             .k = x[1],
             .trans_b = true,
             .lda = x[1],
             .ldb = x[1],
             .ldd = w[0],
             .in = compute,
             .out = compute};
  g.a = args.x_RI.data();
  g.b = weight.data();
  g.bias = bias.present() ? bias.data() : nullptr;
  g.c = args.add_RO.present() ? args.add_RO.data() : nullptr;
  g.d = args.y_RO.data();
  gemm(stream, g);
}

void linear_backward(Stream& stream, const LinearBackward& args) {
  const std::int64_t R = args.dy_RO.dim(0), O = args.dy_RO.dim(1);
  const DType compute = args.dy_RO.dtype();
  Scratch scratch(args.scratch);
  if (args.dx_RI.present()) {
    const std::int64_t I = args.dx_RI.dim(1);
    Gemm g;
    g.shape = {.m = R, .n = I, .k = O, .lda = O, .ldb = I, .ldd = I, .in = compute, .out = compute};
    g.a = args.dy_RO.data();
    g.b = as_type(stream, args.w_OI, compute, scratch).data();
    g.c = args.accumulate_dx ? args.dx_RI.data() : nullptr;
    g.d = args.dx_RI.data();
    gemm(stream, g);
  }
  if (args.dw_OI.present() && R > 0) {
    const std::int64_t I = args.dw_OI.dim(1);
    Gemm g;
    g.shape = {.m = O,
               .n = I,
               .k = R,
               .trans_a = true,
               .lda = O,
               .ldb = I,
               .ldd = I,
               .in = compute,
               .out = DType::kF32};
    g.a = args.dy_RO.data();
    g.b = args.x_RI.data();
    g.d = args.dw_OI.as<float>();
    g.c = g.d;
    gemm(stream, g);
  }
  if (args.db_O.present()) bias_gradient(stream, args.dy_RO, args.db_O, scratch);
}

}  // namespace longstride::ops::cuda
