// RMS normalisation: the contract is in ops/rms_norm.h.    R rows of N elements   W of an output's
//
// A team of threads (rms_norm_team.cuh) holds a row in registers, so that it is read once. Rows
// that are not made of 16-byte pieces, or longer than a block holds, use plain kernels, which read
// them twice.
//
// Backward: each of `row_groups` blocks walks every row_groups-th (set of) rows and keeps its share
// of dw in registers; the shares become rows of scratch, which a second kernel adds in order. All
// of this depends on shapes alone.
#include "ops/rms_norm.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/rms_norm_team.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kPlainThreads = 256;

// Blocks of the backward pass, each with one partial row of dw: enough to fill the largest GPUs,
// few enough that the partial rows are small compared with the rows themselves.
std::int64_t row_groups(std::int64_t R, std::int64_t N) {
  return std::min<std::int64_t>(R, N <= kShortRow ? 396 : 264);
}

template <class E>
struct Forward {
  const E* x_RN;
  Weights w_N;
  E* y_RW;
  std::int64_t R, N, W;
  float eps;
};

template <class E>
struct Backward {
  const E *dy_RN, *x_RN;
  Weights w_N;
  E* dx_RN;
  float* partial_GN;
  std::int64_t R, N;
  float eps;
  bool accumulate_dx;
};

__device__ __forceinline__ float inverse_rms(float sum_of_squares, std::int64_t n, float eps) {
  return 1.0f / sqrtf(sum_of_squares / static_cast<float>(n) + eps);
}

template <class E, int kLanes, int kVectors>
__global__ void __launch_bounds__(Team<kLanes>::kMaxThreads) forward_kernel(Forward<E> args) {
  using T = Team<kLanes>;
  constexpr int kWidth = vector_width<E>;
  __shared__ float shared[1][kMaxWarps];
  const int N = static_cast<int>(args.N);
  const std::int64_t row = std::int64_t{blockIdx.x} * T::kPerBlock + T::index();
  const bool exists = row < args.R;  // if not, the lanes still take part in the sums

  Packed<E, kWidth> x[kVectors];
  float w[kVectors][kWidth];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = column_of<kLanes, kWidth>(v);
    x[v] = exists && column < N ? Packed<E, kWidth>::load(args.x_RN + row * N + column)
                                : Packed<E, kWidth>::zero();
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {  // before the sum, so that the latencies overlap
    const int column = column_of<kLanes, kWidth>(v);
    args.w_N.load_within(column, N, w[v]);
  }
  float sums[1] = {0};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float values[kWidth];
    x[v].unpack(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[0] += values[j] * values[j];
  }
  T::sum(sums, shared);
  const float scale = inverse_rms(sums[0], N, args.eps);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = column_of<kLanes, kWidth>(v);
    if (!exists || column >= N) continue;
    float values[kWidth];
    x[v].unpack(values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[j] = values[j] * scale * w[v][j];
    store_floats<kWidth>(values, args.y_RW + row * args.W + column);
  }
}

// A thread's share of a row in the backward pass.
template <class E, int kVectors>
struct RowInputs {
  Packed<E, vector_width<E>> x[kVectors], dy[kVectors], dx[kVectors];
};

template <class E, int kLanes, int kVectors>
__device__ __forceinline__ void load_row(const Backward<E>& args, std::int64_t row,
                                         RowInputs<E, kVectors>& to) {
  constexpr int kWidth = vector_width<E>;
  using Elements = Packed<E, kWidth>;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = column_of<kLanes, kWidth>(v);
    const std::int64_t at = row * args.N + column;
    const bool inside = row < args.R && column < args.N;
    to.x[v] = inside ? Elements::load(args.x_RN + at) : Elements::zero();
    to.dy[v] = inside ? Elements::load(args.dy_RN + at) : Elements::zero();
    to.dx[v] = inside && args.accumulate_dx ? Elements::load(args.dx_RN + at) : Elements::zero();
  }
}

// Blocks per multiprocessor in the backward pass; limits the registers of a thread.
template <int kLanes, int kVectors>
constexpr int kResident = kVectors > 1           ? 1
                          : kLanes == kBlockTeam ? 2
                                                 : 3;

template <class E, int kLanes, int kVectors>
__global__ void __launch_bounds__(Team<kLanes>::kMaxThreads, (kResident<kLanes, kVectors>))
    backward_kernel(Backward<E> args) {
  using T = Team<kLanes>;
  constexpr int kWidth = vector_width<E>;
  // If registers allow, the weights stay in them and the next row is loaded during this one.
  constexpr bool kRoomy = kVectors <= 2;
  __shared__ float shared[2][2]
                         [kMaxWarps];  // used alternately, so that one barrier per row is enough
  const int N = static_cast<int>(args.N);

  float w[kVectors][kWidth], dw[kVectors][kWidth];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) dw[v][j] = 0;
    if (kRoomy) args.w_N.load_within(column_of<kLanes, kWidth>(v), N, w[v]);
  }
  RowInputs<E, kVectors> now, next;
  const std::int64_t stride = std::int64_t{gridDim.x} * T::kPerBlock;
  std::int64_t first = std::int64_t{blockIdx.x} * T::kPerBlock;  // row of the block's first team
  load_row<E, kLanes, kVectors>(args, first + T::index(), now);
  for (int turn = 0; first < args.R; first += stride, turn ^= 1) {
    const std::int64_t row = first + T::index();
    if constexpr (kRoomy) load_row<E, kLanes, kVectors>(args, row + stride, next);
    float sums[2] = {0, 0};  // of x^2 and of dy * w * x
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!kRoomy) args.w_N.load_within(column_of<kLanes, kWidth>(v), N, w[v]);
      float x[kWidth], dy[kWidth];
      now.x[v].unpack(x);
      now.dy[v].unpack(dy);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        sums[0] += x[j] * x[j];
        sums[1] += dy[j] * w[v][j] * x[j];
      }
    }
    T::sum(sums, shared[turn]);
    const float scale = inverse_rms(sums[0], N, args.eps);
    // The component of the gradient along x, which the normalisation removes.
    const float along = sums[1] * (scale * scale * scale / static_cast<float>(N));
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = column_of<kLanes, kWidth>(v);
      if (!kRoomy) args.w_N.load_within(column, N, w[v]);
      float x[kWidth], dy[kWidth], dx[kWidth];
      now.x[v].unpack(x);
      now.dy[v].unpack(dy);
      now.dx[v].unpack(dx);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float g = dy[j] * scale;
        const float d = g * w[v][j] - x[j] * along;
        dw[v][j] += g * x[j];
        dx[j] = args.accumulate_dx ? dx[j] + d : d;
      }
      if (row < args.R && column < N) store_floats<kWidth>(dx, args.dx_RN + row * N + column);
    }
    if constexpr (kRoomy) {
      now = next;
    } else {
      load_row<E, kLanes, kVectors>(args, row + stride, now);
    }
  }

  float* partial_N = args.partial_GN + std::int64_t{blockIdx.x} * N;
  if constexpr (T::kIsBlock) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = column_of<kLanes, kWidth>(v);
      if (column < N) store_floats<kWidth>(dw[v], partial_N + column);
    }
  } else {
    // The teams' shares, added in the order of the teams.
    constexpr int kColumns = kLanes * kVectors * kWidth;
    __shared__ float shares[T::kPerBlock][kColumns];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        shares[T::index()][column_of<kLanes, kWidth>(v) + j] = dw[v][j];
    }
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < N; column += kTeamsThreads) {
      float sum = 0;
#pragma unroll
      for (int team = 0; team < T::kPerBlock; ++team) sum += shares[team][column];
      partial_N[column] = sum;
    }
  }
}

// Any row: a block reads it twice, element by element.
template <class E>
__global__ void __launch_bounds__(kPlainThreads) plain_forward_kernel(Forward<E> args) {
  __shared__ float shared[1][kMaxWarps];
  const E* x_N = args.x_RN + std::int64_t{blockIdx.x} * args.N;
  E* y_N = args.y_RW + std::int64_t{blockIdx.x} * args.W;
  float sums[1] = {0};
  for (std::int64_t i = threadIdx.x; i < args.N; i += kPlainThreads) {
    float x[1];
    load_floats<1>(x_N + i, x);
    sums[0] += x[0] * x[0];
  }
  block_sum(sums, shared);
  const float scale = inverse_rms(sums[0], args.N, args.eps);
  for (std::int64_t i = threadIdx.x; i < args.N; i += kPlainThreads) {
    float x[1], w[1];
    load_floats<1>(x_N + i, x);
    args.w_N.load(i, w);
    x[0] = x[0] * scale * w[0];
    store_floats<1>(x, y_N + i);
  }
}

template <class E>
__global__ void __launch_bounds__(kPlainThreads) plain_backward_kernel(Backward<E> args) {
  __shared__ float shared[2][2][kMaxWarps];
  float* partial_N = args.partial_GN + std::int64_t{blockIdx.x} * args.N;
  for (std::int64_t i = threadIdx.x; i < args.N; i += kPlainThreads) partial_N[i] = 0;
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < args.R; row += gridDim.x, turn ^= 1) {
    const E *x_N = args.x_RN + row * args.N, *dy_N = args.dy_RN + row * args.N;
    E* dx_N = args.dx_RN + row * args.N;
    float sums[2] = {0, 0}, x[1], dy[1], w[1], dx[1];
    for (std::int64_t i = threadIdx.x; i < args.N; i += kPlainThreads) {
      load_floats<1>(x_N + i, x);
      load_floats<1>(dy_N + i, dy);
      args.w_N.load(i, w);
      sums[0] += x[0] * x[0];
      sums[1] += dy[0] * w[0] * x[0];
    }
    block_sum(sums, shared[turn]);
    const float scale = inverse_rms(sums[0], args.N, args.eps);
    const float along = sums[1] * (scale * scale * scale / static_cast<float>(args.N));
    for (std::int64_t i = threadIdx.x; i < args.N; i += kPlainThreads) {
      load_floats<1>(x_N + i, x);
      load_floats<1>(dy_N + i, dy);
      args.w_N.load(i, w);
      const float g = dy[0] * scale;
      dx[0] = 0;
      if (args.accumulate_dx) load_floats<1>(dx_N + i, dx);
      dx[0] += g * w[0] - x[0] * along;
      store_floats<1>(dx, dx_N + i);
      partial_N[i] += g * x[0];
    }
  }
}

// dw += the sum of the partial rows: slice s adds rows s, s + kSlices, ..., then the slices are
// added in order.
constexpr int kSlices = 32;
__global__ void __launch_bounds__(32 * kSlices)
    add_partials_kernel(const float* partial_GN, int G, std::int64_t N, float* dw_N) {
  __shared__ double shares[kSlices][32];
  const int lane = static_cast<int>(threadIdx.x), slice = static_cast<int>(threadIdx.y);
  const std::int64_t column = std::int64_t{blockIdx.x} * 32 + lane;
  double sum = 0;
  if (column < N) {
#pragma unroll 4
    for (int row = slice; row < G; row += kSlices)
      sum += static_cast<double>(partial_GN[row * N + column]);
  }
  shares[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || column >= N) return;
#pragma unroll
  for (int s = 1; s < kSlices; ++s) sum += shares[s][lane];
  dw_N[column] += static_cast<float>(sum);
}

}  // namespace

std::int64_t rms_norm_backward_scratch_elements(const RmsNormShape& shape) {
  return row_groups(shape.rows, shape.n) * shape.n;
}

void rms_norm_forward(Stream& stream, const RmsNormForward& args) {
  const std::int64_t R = args.x_RN.dim(0), N = args.x_RN.dim(1), W = args.y_RW.dim(1);
  if (args.x_RN.elements() == 0) return;
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  const bool pointers = aligned({args.x_RN.data(), args.w_N.data(), args.y_RW.data()});
  dispatch_activation(args.x_RN.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    const Forward<E> call{args.x_RN.as<E>(),
                          {args.w_N.data(), args.w_N.dtype(), args.offset},
                          args.y_RW.as<E>(),
                          R,
                          N,
                          W,
                          args.eps};
    const bool fast = pointers && W % vector_width<E> == 0;
    const bool done = fast && with_team<E, 2>(N, [&](auto lanes, auto vectors) {
                        constexpr int kLanes = decltype(lanes)::value,
                                      kVectors = decltype(vectors)::value;
                        const unsigned blocks = grid_size(ceil_div(R, Team<kLanes>::kPerBlock));
                        const unsigned threads = team_threads<E>(N, kLanes, kVectors);
                        forward_kernel<E, kLanes, kVectors><<<blocks, threads, 0, queue>>>(call);
                      });
    if (!done) plain_forward_kernel<E><<<grid_size(R), kPlainThreads, 0, queue>>>(call);
  });
  LS_CUDA_LAUNCHED();
}

void rms_norm_backward(Stream& stream, const RmsNormBackward& args) {
  const std::int64_t R = args.x_RN.dim(0), N = args.x_RN.dim(1);
  if (args.x_RN.elements() == 0) return;
  const std::int64_t groups = row_groups(R, N);
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  float* partial_GN = args.scratch.as<float>();
  const bool fast = aligned(
      {args.dy_RN.data(), args.x_RN.data(), args.w_N.data(), args.dx_RN.data(), partial_GN});
  dispatch_activation(args.x_RN.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    const Backward<E> call{args.dy_RN.as<E>(),
                           args.x_RN.as<E>(),
                           {args.w_N.data(), args.w_N.dtype(), args.offset},
                           args.dx_RN.as<E>(),
                           partial_GN,
                           R,
                           N,
                           args.eps,
                           args.accumulate_dx};
    const bool done =
        fast && with_team<E, 1>(N, [&](auto lanes, auto vectors) {
          constexpr int kLanes = decltype(lanes)::value, kVectors = decltype(vectors)::value;
          const unsigned threads = team_threads<E>(N, kLanes, kVectors);
          backward_kernel<E, kLanes, kVectors><<<grid_size(groups), threads, 0, queue>>>(call);
        });
    if (!done) plain_backward_kernel<E><<<grid_size(groups), kPlainThreads, 0, queue>>>(call);
  });
  LS_CUDA_LAUNCHED();
  // The shares of dw are computed even without dw: so dx has the same bits, and they cost little.
  if (!args.dw_N.present()) return;
  add_partials_kernel<<<grid_size(ceil_div(N, 32)), dim3(32, kSlices), 0, queue>>>(
      partial_GN, static_cast<int>(groups), N, args.dw_N.as<float>());
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
