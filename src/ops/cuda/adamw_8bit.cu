// AdamW with moments in 8 bits. A warp updates one block of 256 elements at a time: it reads all of
// it, finds the new magnitudes by one reduction each, and writes it, so that nothing is read twice.
#include "ops/cuda/adamw_8bit.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/adamw_factors.h"
#include "ops/cuda/stochastic_store.cuh"
#include "tensor/dynamic_code.h"

namespace longstride::ops::cuda {
namespace {

using MomentCode = DynamicCode<true>;   // of m
using SquareCode = DynamicCode<false>;  // of v

constexpr int kThreads = 512, kWarps = kThreads / 32, kBlocksPerProcessor = 2;
constexpr int kBlock = static_cast<int>(kCodeBlock), kPerLane = kBlock / 32;

__device__ constexpr MomentCode device_moment_code;
__device__ constexpr SquareCode device_square_code;

// The codes in shared memory. Lanes look up unrelated entries: of the tables of floats each lane
// has one of several copies, side by side, so that fewer of them meet in a bank.
template <bool kSigned>
struct SharedCode {
  using Code = DynamicCode<kSigned>;
  static constexpr int kCopies = 8;

  float values[256 * kCopies], borders[Code::kRanks * kCopies];
  std::uint8_t below[Code::kBins];

  // By all threads of the block; a barrier must follow.
  __device__ void fill(const Code& code) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < 256 * kCopies; i += kThreads) values[i] = code.values[i / kCopies];
    for (int i = thread; i < Code::kRanks * kCopies; i += kThreads)
      borders[i] = code.borders[i / kCopies];
    for (int i = thread; i < Code::kBins; i += kThreads) below[i] = code.below[i];
  }
  __device__ float value(std::uint32_t code, int copy) const {
    return values[static_cast<int>(code) * kCopies + copy];
  }
  // As DynamicCode::nearest.
  __device__ std::uint32_t nearest(float x, int copy) const {
    const std::uint32_t bits = __float_as_uint(x);
    const int rank = below[Code::bin_of(bits & 0x7fffffffu)];
    const int more = borders[rank * kCopies + copy] < fabsf(x) ? 1 : 0;
    return static_cast<std::uint32_t>(Code::code_of(rank + more, (bits >> 31) != 0));
  }
};

// W: the type of the weight. kMaster: there is an F32 master; `weight` may then be null.
template <class W, bool kMaster>
struct Update {
  AdamWFactors f;
  const float* g;
  float* master;
  W* weight;
  std::uint8_t *m, *v;
  float *m_absmax, *v_absmax;
  std::int64_t elements;
  std::uint64_t key;
  std::int64_t first;
};

template <int N>
__device__ __forceinline__ void load_codes(const std::uint8_t* from, std::uint32_t (&to)[N]) {
  if constexpr (N == 1) {
    to[0] = *from;
  } else {
    static_assert(N == 4);
    const std::uint32_t packed = *reinterpret_cast<const std::uint32_t*>(from);
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = (packed >> (8 * j)) & 0xffu;
  }
}

template <int N>
__device__ __forceinline__ void store_codes(const std::uint32_t (&from)[N], std::uint8_t* to) {
  if constexpr (N == 1) {
    *to = static_cast<std::uint8_t>(from[0]);
  } else {
    static_assert(N == 4);
    *reinterpret_cast<std::uint32_t*>(to) = from[0] | from[1] << 8 | from[2] << 16 | from[3] << 24;
  }
}

// The largest of the warp's values, none of which is negative: their bits are ordered like them.
__device__ __forceinline__ float warp_max(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(value)));
#else
  return value;
#endif
}

// One block of elements by one warp; lane l has elements l * N + [0, N) of every 32 * N. With N = 4
// the block is whole and its addresses are aligned; with N = 1 it may be cut.
template <int N, class W, bool kMaster>
__device__ __forceinline__ void update_block(const Update<W, kMaster>& u, std::int64_t block,
                                             const SharedCode<true>& moments,
                                             const SharedCode<false>& squares) {
  constexpr int kAccesses = kPerLane / N, kSpan = 32 * N;
  const int lane = static_cast<int>(threadIdx.x) % 32, copy = lane % SharedCode<true>::kCopies;
  const std::int64_t begin = block * kBlock + lane * N;
  const auto inside = [&](int a) { return N > 1 || begin + a * kSpan < u.elements; };

  float g[kAccesses][N], p[kAccesses][N], m[kAccesses][N], v[kAccesses][N];
  std::uint32_t m_codes[kAccesses][N], v_codes[kAccesses][N];
#pragma unroll
  for (int a = 0; a < kAccesses; ++a) {
    const std::int64_t i = begin + a * kSpan;
    if (inside(a)) {
      load_floats<N>(u.g + i, g[a]);
      if constexpr (kMaster) {
        load_floats<N>(u.master + i, p[a]);
      } else {
        load_floats<N>(u.weight + i, p[a]);
      }
      load_codes<N>(u.m + i, m_codes[a]);
      load_codes<N>(u.v + i, v_codes[a]);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j)
        g[a][j] = p[a][j] = 0.0f, m_codes[a][j] = MomentCode::kZero, v_codes[a][j] = 0;
    }
  }
  const float m_before = u.m_absmax[block], v_before = u.v_absmax[block];

  float m_max = 0.0f, v_max = 0.0f;
#pragma unroll
  for (int a = 0; a < kAccesses; ++a) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      // The fused products are written out, so that a CPU computes the same moments.
      const float d = g[a][j] * u.f.grad_scale;
      const float m_old = moments.value(m_codes[a][j], copy) * m_before;
      const float v_old = squares.value(v_codes[a][j], copy) * v_before;
      m[a][j] = fmaf(u.f.beta1, m_old, u.f.one_minus_beta1 * d);
      v[a][j] = fmaf(u.f.beta2, v_old, u.f.one_minus_beta2 * d * d);
      m_max = fmaxf(m_max, fabsf(m[a][j]));
      v_max = fmaxf(v_max, fabsf(v[a][j]));
      // The parameter alone depends on these, which the hardware computes to a few ulp.
      const float root = v[a][j] > 0.0f ? v[a][j] * rsqrtf(v[a][j]) : 0.0f;
      p[a][j] = fmaf(u.f.keep, p[a][j],
                     -__fdividef(u.f.step * m[a][j], fmaf(root, u.f.root_scale, u.f.eps)));
    }
  }
  m_max = warp_max(m_max);
  v_max = warp_max(v_max);
  const float m_scale = code_scale(m_max), v_scale = code_scale(v_max);

  const RowRounding row = element_row(u.key, u.first + block * kBlock);
#pragma unroll
  for (int a = 0; a < kAccesses; ++a) {
    if (!inside(a)) continue;
    const std::int64_t i = begin + a * kSpan;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      m_codes[a][j] = moments.nearest(m[a][j] * m_scale, copy);
      v_codes[a][j] = squares.nearest(v[a][j] * v_scale, copy);
    }
    store_codes<N>(m_codes[a], u.m + i);
    store_codes<N>(v_codes[a], u.v + i);
    if constexpr (kMaster) {
      store_floats<N>(p[a], u.master + i);
      if (u.weight != nullptr) store_floats<N>(p[a], u.weight + i);
    } else {
      store_stochastically<N>(p[a], row, static_cast<std::uint32_t>(lane * N + a * kSpan),
                              u.weight + i);
    }
  }
  if (lane == 0) u.m_absmax[block] = m_max;
  if (lane == 1) u.v_absmax[block] = v_max;
}

template <class W, bool kMaster>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    adamw_8bit_kernel(Update<W, kMaster> u, bool aligned) {
  static_assert(kBlock == kRoundingRow);
  __shared__ SharedCode<true> moments;
  __shared__ SharedCode<false> squares;
  moments.fill(device_moment_code);
  squares.fill(device_square_code);
  __syncthreads();
  const std::int64_t blocks = (u.elements + kBlock - 1) / kBlock;
  const std::int64_t stride = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t block = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; block < blocks;
       block += stride) {
    if (aligned && (block + 1) * kBlock <= u.elements) {
      update_block<4>(u, block, moments, squares);
    } else {
      update_block<1>(u, block, moments, squares);
    }
  }
}

template <class W, bool kMaster>
void launch(Stream& stream, const AdamW& args) {
  const Update<W, kMaster> u{adamw_factors(args),
                             args.g.as<float>(),
                             kMaster ? args.master.as<float>() : nullptr,
                             args.weight.present() ? args.weight.as<W>() : nullptr,
                             args.m.as<std::uint8_t>(),
                             args.v.as<std::uint8_t>(),
                             args.m_absmax.as<float>(),
                             args.v_absmax.as<float>(),
                             args.g.elements(),
                             args.rounding_key,
                             args.first_element};
  if (u.elements == 0) return;
  const auto& queue = longstride::cuda::cuda_stream(stream);
  const std::int64_t wanted = ceil_div(u.elements, std::int64_t{kBlock} * kWarps);
  const unsigned grid = grid_size(
      std::min<std::int64_t>(wanted, std::int64_t{kBlocksPerProcessor} * queue.multiprocessors()));
  adamw_8bit_kernel<W, kMaster>
      <<<grid, kThreads, 0, queue.handle()>>>(u, aligned({u.g, u.master, u.weight, u.m, u.v}));
  LS_CUDA_LAUNCHED();
}

}  // namespace

void adamw_8bit(Stream& stream, const AdamW& args) {
  dispatch_weight(args.weight.present() ? args.weight.dtype() : DType::kF32, [&](auto type) {
    using W = typename decltype(type)::type;
    if (args.master.present()) return launch<W, true>(stream, args);
    if constexpr (!std::is_same_v<W, float>) launch<W, false>(stream, args);
  });
}

}  // namespace longstride::ops::cuda
