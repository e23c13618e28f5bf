// Low-rank adapters on CUDA: thin cuBLASLt products, and copies between matrices of different row
// lengths.   T tokens   I inputs   O outputs   R rank   P adapter columns   W = I + P
#include "ops/adapter.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/gemm_plans.h"
#include "ops/cuda/vector_access.cuh"
#include "tensor/dropout_mask.h"

namespace longstride::ops::cuda {
namespace {

using longstride::cuda::cuda_stream;

constexpr int kThreads = 256;

// Calls f(std::integral_constant<int, N>) with the widest access that the rows allow. `lengths` are
// the elements of rows, `pointers` where the first ones begin.
template <int kWide, class F>
void with_width(std::initializer_list<std::int64_t> lengths,
                std::initializer_list<const void*> pointers, F&& f) {
  bool wide = aligned(pointers);
  for (const std::int64_t length : lengths) wide = wide && length % kWide == 0;
  if (wide)
    f(std::integral_constant<int, kWide>{});
  else
    f(std::integral_constant<int, 1>{});
}

// Calls body(row, column) for every N-th column of every row.
template <int N, class Body>
__global__ void __launch_bounds__(kThreads)
    for_rows_kernel(std::int64_t rows, std::int64_t columns, Body body) {
  const std::int64_t pieces = columns / N, all = rows * pieces;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < all;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t row = i / pieces;
    body.template at<N>(row, (i - row * pieces) * N);
  }
}

template <int N, class Body>
void for_rows(Stream& stream, std::int64_t rows, std::int64_t columns, const Body& body) {
  if (rows == 0 || columns == 0) return;
  const std::int64_t blocks =
      std::min<std::int64_t>(ceil_div(rows * (columns / N), kThreads), 1 << 20);
  for_rows_kernel<N>
      <<<grid_size(blocks), kThreads, 0, cuda_stream(stream).handle()>>>(rows, columns, body);
  LS_CUDA_LAUNCHED();
}

template <class From, class To>
struct PlaceBody {
  const From* from;
  To* to;
  std::int64_t from_stride, to_stride;
  float scale;
  template <int N>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    float x[N];
    load_floats<N>(from + row * from_stride + column, x);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] *= scale;
    store_floats<N>(x, to + row * to_stride + column);
  }
};

template <class E>
struct DropBody {
  const E* x;
  E* y;
  std::int64_t x_stride, y_stride, first_token;
  DropoutMask mask;
  template <int N>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    const RowRounding random = mask.row(first_token + row);
    float v[N];
    load_floats<N>(x + row * x_stride + column, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= mask.factor(random, column + i);
    store_floats<N>(v, y + row * y_stride + column);
  }
};

// dx = d + dx with elements dropped.
template <class E>
struct DropGradientBody {
  const E* d;
  E* dx;
  std::int64_t d_stride, dx_stride, first_token;
  DropoutMask mask;
  template <int N>
  __device__ void at(std::int64_t row, std::int64_t column) const {
    const RowRounding random = mask.row(first_token + row);
    float a[N], b[N];
    load_floats<N>(d + row * d_stride + column, a);
    load_floats<N>(dx + row * dx_stride + column, b);
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] += b[i] * mask.factor(random, column + i);
    store_floats<N>(a, dx + row * dx_stride + column);
  }
};

// The address of a column in the first row.
const void* at_column(const ConstView& x, std::int64_t column) {
  return static_cast<const std::byte*>(x.data()) + column * size_of(x.dtype());
}
void* at_column(const View& x, std::int64_t column) {
  return static_cast<std::byte*>(x.data()) + column * size_of(x.dtype());
}

// What u is made of: the input, or what dropout left of it.
ConstView source_of(const ConstView& dropped_TI, const ConstView& xu_TW) {
  return dropped_TI.present() ? dropped_TI : xu_TW;
}

}  // namespace

void dropout_forward(Stream& stream, const DropoutForward& args) {
  const std::int64_t T = args.y_TI.dim(0), I = args.y_TI.dim(1), W = args.x_TW.dim(1);
  dispatch_activation(args.y_TI.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    const DropBody<E> body{args.x_TW.as<E>(),
                           args.y_TI.as<E>(),
                           W,
                           I,
                           args.dropout.first_token,
                           {args.dropout.key, args.dropout.rate}};
    with_width<vector_width<E>>({I, W}, {args.x_TW.data(), args.y_TI.data()}, [&](auto width) {
      for_rows<decltype(width)::value>(stream, T, I, body);
    });
  });
}

void adapter_forward(Stream& stream, const AdapterForward& args) {
  const std::int64_t T = args.xu_TW.dim(0), W = args.xu_TW.dim(1), P = args.a_PI.dim(0),
                     I = args.a_PI.dim(1);
  if (args.x_TI.present()) cuda::place_columns(stream, {.from_RC = args.x_TI, .to_RW = args.xu_TW});
  const ConstView x = source_of(args.dropped_TI, args.xu_TW);
  const DType compute = args.xu_TW.dtype();
  Gemm g;
  g.shape = {.m = T,
             .n = P,
             .k = I,
             .trans_b = true,
             .lda = x.dim(1),
             .ldb = I,
             .ldd = W,
             .in = compute,
             .out = compute};
  g.a = x.data();
  g.b = args.a_PI.data();
  g.d = at_column(args.xu_TW, I);
  gemm(stream, g);
}

void adapter_backward(Stream& stream, const AdapterBackward& args) {
  const std::int64_t T = args.d_TW.dim(0), W = args.d_TW.dim(1), P = args.a_PI.dim(0),
                     I = args.a_PI.dim(1);
  if (T == 0) return;
  const DType compute = args.d_TW.dtype();
  const void* const du = at_column(args.d_TW, I);
  if (args.da_RI.present()) {
    const ConstView x = source_of(args.dropped_TI, args.xu_TW);
    Gemm g;
    g.shape = {.m = args.da_RI.dim(0),
               .n = I,
               .k = T,
               .trans_a = true,
               .lda = W,
               .ldb = x.dim(1),
               .ldd = I,
               .in = compute,
               .out = DType::kF32};
    g.a = du;
    g.b = x.data();
    g.d = args.da_RI.as<float>();
    g.c = g.d;
    gemm(stream, g);
  }
  const bool drops = args.dropout.rate > 0;
  Gemm g;
  g.shape = {.m = T, .n = I, .k = P, .lda = W, .ldb = I, .ldd = I, .in = compute, .out = compute};
  g.a = du;
  g.b = args.a_PI.data();
  g.d = args.dx_TI.data();
  if (!drops) {
    g.c = args.d_TW.data();
    g.shape.ldc = W;
  }
  gemm(stream, g);
  if (!drops) return;
  dispatch_activation(compute, [&](auto type) {
    using E = typename decltype(type)::type;
    const DropGradientBody<E> body{args.d_TW.as<E>(),
                                   args.dx_TI.as<E>(),
                                   W,
                                   I,
                                   args.dropout.first_token,
                                   {args.dropout.key, args.dropout.rate}};
    with_width<vector_width<E>>({I, W}, {args.d_TW.data(), args.dx_TI.data()}, [&](auto width) {
      for_rows<decltype(width)::value>(stream, T, I, body);
    });
  });
}

void adapter_gradient(Stream& stream, const AdapterGradient& args) {
  const std::int64_t T = args.dy_TO.dim(0), O = args.dy_TO.dim(1), R = args.db_OR.dim(1);
  if (T == 0) return;
  Gemm g;
  g.shape = {.m = O,
             .n = R,
             .k = T,
             .trans_a = true,
             .lda = O,
             .ldb = args.xu_TW.dim(1),
             .ldd = R,
             .in = args.dy_TO.dtype(),
             .out = DType::kF32};
  g.a = args.dy_TO.data();
  g.b = at_column(args.xu_TW, args.first);
  g.d = args.db_OR.as<float>();
  g.c = g.d;
  g.scale = static_cast<float>(args.scale);
  gemm(stream, g);
}

void place_columns(Stream& stream, const PlaceColumns& args) {
  const std::int64_t R = args.from_RC.dim(0), C = args.from_RC.dim(1), W = args.to_RW.dim(1);
  dispatch_weight(args.from_RC.dtype(), [&](auto from) {
    using From = typename decltype(from)::type;
    dispatch_weight(args.to_RW.dtype(), [&](auto to) {
      using To = typename decltype(to)::type;
      To* const begin = args.to_RW.as<To>() + args.first;
      const PlaceBody<From, To> body{args.from_RC.as<From>(), begin, C, W,
                                     static_cast<float>(args.scale)};
      with_width<vector_width<From, To>>({C, W}, {args.from_RC.data(), begin}, [&](auto width) {
        for_rows<decltype(width)::value>(stream, R, C, body);
      });
    });
  });
}

}  // namespace longstride::ops::cuda
