// Gradient norm and AdamW: the contract is in ops/optimizer.h.
#include "ops/optimizer.h"

#include "ops/adamw_factors.h"
#include "ops/cuda/adamw_8bit.h"
#include "ops/cuda/for_elements.cuh"
#include "ops/cuda/stochastic_store.cuh"

namespace longstride::ops::cuda {
namespace {

// The sum of squares: a block adds every blocks-th piece of kPiece elements, thread by thread; one
// block then adds the blocks' sums. The number of blocks depends on the number of elements alone.
constexpr int kSumThreads = 256, kMaxSums = 1024;
constexpr int kAhead = 4;  // accesses of a thread in flight at once
constexpr std::int64_t kPiece = std::int64_t{kSumThreads} * 4 * kAhead;

// The operation has no scratch. Only one stream per device calls it, so one call's sums have been
// read before the next call writes its own.
__device__ double block_sums[kMaxSums];

template <int N>
__global__ void __launch_bounds__(kSumThreads)
    sum_of_squares_kernel(const float* __restrict__ g, std::int64_t elements) {
  __shared__ double shared[1][kMaxWarps];
  double sum[1] = {0};
  constexpr int kSteps = 4 / N * kAhead;
  constexpr std::int64_t kSpan = kSumThreads * N;
  const std::int64_t stride = std::int64_t{gridDim.x} * kPiece;
  for (std::int64_t piece = std::int64_t{blockIdx.x} * kPiece; piece < elements; piece += stride) {
    float values[kSteps][N];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t i = piece + step * kSpan + static_cast<std::int64_t>(threadIdx.x) * N;
      if (i + N <= elements) {
        load_floats<N>(g + i, values[step]);
      } else {
#pragma unroll
        for (int j = 0; j < N; ++j) values[step][j] = i + j < elements ? g[i + j] : 0.0f;
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const auto value = static_cast<double>(values[step][j]);
        sum[0] += value * value;
      }
    }
  }
  block_sum(sum, shared);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sum[0];
}

__global__ void __launch_bounds__(kSumThreads) add_block_sums_kernel(int blocks, double* total) {
  __shared__ double shared[1][kMaxWarps];
  double sum[1] = {0};
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kSumThreads) sum[0] += block_sums[i];
  block_sum(sum, shared);
  if (threadIdx.x == 0) *total += sum[0];
}

// W: the type of the weight's copy; `weight` is null if there is none.
template <class W>
struct AdamWBody {
  AdamWFactors f;
  const float* g;
  float *master, *m, *v;
  W* weight;

  static constexpr int kWidth = vector_width<float>;
  template <int N>
  struct Inputs {
    Packed<float, N> g, master, m, v;
  };
  template <int N>
  __device__ Inputs<N> load(std::int64_t i) const {
    using Floats = Packed<float, N>;
    return {Floats::load(g + i), Floats::load(master + i), Floats::load(m + i),
            Floats::load(v + i)};
  }
  template <int N>
  __device__ void store(std::int64_t i, const Inputs<N>& inputs) const {
    float gradient[N], p[N], first[N], second[N];
    inputs.g.unpack(gradient);
    inputs.master.unpack(p);
    inputs.m.unpack(first);
    inputs.v.unpack(second);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float d = gradient[j] * f.grad_scale;
      first[j] = f.beta1 * first[j] + f.one_minus_beta1 * d;
      second[j] = f.beta2 * second[j] + f.one_minus_beta2 * d * d;
      p[j] = f.keep * p[j] - f.step * first[j] / (sqrtf(second[j]) * f.root_scale + f.eps);
    }
    store_floats<N>(p, master + i);
    store_floats<N>(first, m + i);
    store_floats<N>(second, v + i);
    if (weight != nullptr) store_floats<N>(p, weight + i);
  }
};

// Without a master: W is the type of the weight, which is rounded stochastically.
template <class W>
struct WeightOnlyBody {
  AdamWFactors f;
  const float* g;
  W* weight;
  float *m, *v;
  std::uint64_t key;
  std::int64_t first;

  static constexpr int kWidth = vector_width<float>;
  template <int N>
  struct Inputs {
    Packed<float, N> g, m, v;
    Packed<W, N> weight;
  };
  template <int N>
  __device__ Inputs<N> load(std::int64_t i) const {
    using Floats = Packed<float, N>;
    return {Floats::load(g + i), Floats::load(m + i), Floats::load(v + i),
            Packed<W, N>::load(weight + i)};
  }
  template <int N>
  __device__ void store(std::int64_t i, const Inputs<N>& inputs) const {
    float gradient[N], p[N], m_new[N], v_new[N];
    inputs.g.unpack(gradient);
    inputs.weight.unpack(p);
    inputs.m.unpack(m_new);
    inputs.v.unpack(v_new);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float d = gradient[j] * f.grad_scale;
      m_new[j] = f.beta1 * m_new[j] + f.one_minus_beta1 * d;
      v_new[j] = f.beta2 * v_new[j] + f.one_minus_beta2 * d * d;
      p[j] = f.keep * p[j] - f.step * m_new[j] / (sqrtf(v_new[j]) * f.root_scale + f.eps);
    }
    store_floats<N>(m_new, m + i);
    store_floats<N>(v_new, v + i);
    store_stochastically<N>(p, element_row(key, first + i), place_in_row(first + i), weight + i);
  }
};

}  // namespace

void sum_of_squares(Stream& stream, const SumOfSquares& args) {
  const float* g = args.g.as<float>();
  double* sum = args.sum_1.as<double>();
  const std::int64_t elements = args.g.elements();
  if (elements == 0) return;
  const auto blocks =
      static_cast<int>(std::min<std::int64_t>(kMaxSums, ceil_div(elements, kPiece)));
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  if (aligned({g})) {
    sum_of_squares_kernel<4><<<blocks, kSumThreads, 0, queue>>>(g, elements);
  } else {
    sum_of_squares_kernel<1><<<blocks, kSumThreads, 0, queue>>>(g, elements);
  }
  LS_CUDA_LAUNCHED();
  add_block_sums_kernel<<<1, kSumThreads, 0, queue>>>(blocks, sum);
  LS_CUDA_LAUNCHED();
}

void adamw(Stream& stream, const AdamW& args) {
  if (args.m_absmax.present()) return adamw_8bit(stream, args);
  const AdamWFactors factors = adamw_factors(args);
  const auto* g = args.g.as<float>();
  float *m = args.m.as<float>(), *v = args.v.as<float>();
  dispatch_weight(args.weight.present() ? args.weight.dtype() : DType::kF32, [&](auto type) {
    using W = typename decltype(type)::type;
    W* weight = args.weight.present() ? args.weight.as<W>() : nullptr;
    if constexpr (!std::is_same_v<W, float>) {
      if (!args.master.present()) {
        const WeightOnlyBody<W> body{factors,           g, weight, m, v, args.rounding_key,
                                     args.first_element};
        // Four neighbouring elements are in one row of random bits.
        return for_elements<1>(stream, args.g.elements(),
                               aligned({g, weight, m, v}) && args.first_element % 4 == 0, body);
      }
    }
    const AdamWBody<W> body{factors, g, args.master.as<float>(), m, v, weight};
    for_elements<1>(stream, args.g.elements(),
                    aligned({body.g, body.master, body.m, body.v, body.weight}), body);
  });
}

}  // namespace longstride::ops::cuda
