// AdamW with moments in 8 bits. A warp updates one block of 256 elements at a time: it reads all of
// it, finds the new magnitudes by one reduction each, and writes it, so that nothing is read twice.
// Instructions limit it, not memory: codes are looked up once and packed four at a time.
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

// A code in shared memory. Lanes look up unrelated entries: of the values each lane has one of
// several copies, side by side, so that fewer lanes meet in a bank.
template <bool kSigned>
struct SharedCode {
  using Code = DynamicCode<kSigned>;
  static constexpr int kCopies = 8, kBins = static_cast<int>(Code::kBins);

  float values[256 * kCopies];
  std::uint32_t words[kBins];

  // By all threads of the block; a barrier must follow.
  __device__ void fill(const Code& code) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < 256 * kCopies; i += kThreads) values[i] = code.values[i / kCopies];
    for (int i = thread; i < kBins; i += kThreads) words[i] = code.words[i];
  }
  __device__ float value(std::uint32_t code) const {
    return values[static_cast<int>(code) * kCopies + static_cast<int>(threadIdx.x) % kCopies];
  }
  // The rank of a magnitude from 0 to 1, in the upper half (Code::rank_word).
  __device__ std::uint32_t rank_word(float magnitude) const {
    const std::uint32_t bits = max(__float_as_uint(magnitude), Code::kLeast);
    return Code::rank_word(words[(bits >> 16) - Code::kFirstBin], bits);
  }
};

struct SharedCodes {
  SharedCode<true> moments;
  SharedCode<false> squares;
};

// W: the type of the weight. kMaster: there is an F32 master; `weight` may then be null.
template <class W, bool kMaster>
struct Update {
  using Parameter = std::conditional_t<kMaster, float, W>;

  AdamWFactors f;
  const float* g;
  float* master;
  W* weight;
  std::uint8_t *m, *v;
  float *m_absmax, *v_absmax;
  std::int64_t elements;
  std::uint64_t key;
  std::int64_t first;

  __device__ const Parameter* parameter() const {
    if constexpr (kMaster) {
      return master;
    } else {
      return weight;
    }
  }
};

// N codes in a register.
template <int N>
__device__ __forceinline__ std::uint32_t load_codes(const std::uint8_t* from) {
  if constexpr (N == 1) return *from;
  return *reinterpret_cast<const std::uint32_t*>(from);
}
template <int N>
__device__ __forceinline__ void store_codes(std::uint32_t codes, std::uint8_t* to) {
  if constexpr (N == 1) {
    *to = static_cast<std::uint8_t>(codes);
  } else {
    *reinterpret_cast<std::uint32_t*>(to) = codes;
  }
}

// Bytes of a and b, one for each digit of `which`: 0 to 3 from a, 4 to 7 from b; 8 more fills the
// byte with the sign of that one.
__device__ __forceinline__ std::uint32_t bytes_of(std::uint32_t a, std::uint32_t b,
                                                  std::uint32_t which) {
  std::uint32_t bytes = 0;
#ifdef __CUDA_ARCH__
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(which));
#endif
  return bytes;
}
// Of four numbers the byte that `pair` selects in two of them.
__device__ __forceinline__ std::uint32_t gather_bytes(const std::uint32_t (&x)[4],
                                                      std::uint32_t pair) {
  return bytes_of(bytes_of(x[0], x[1], pair), bytes_of(x[2], x[3], pair), 0x5410);
}

// The codes of N elements from their rank words. Four at a time: negative ones as 127 - rank, which
// is 127 ^ rank, the others as 127 + rank.
template <int N>
__device__ __forceinline__ std::uint32_t moment_codes(const std::uint32_t (&ranks)[N],
                                                      const float (&m)[N]) {
  static_assert(MomentCode::kZero == 127);
  if constexpr (N == 1) {
    return MomentCode::code_of(ranks[0] >> 16, __float_as_uint(m[0]) >> 31 != 0);
  } else {
    std::uint32_t bits[N];
#pragma unroll
    for (int j = 0; j < N; ++j) bits[j] = __float_as_uint(m[j]);
    const std::uint32_t negative = gather_bytes(bits, 0xfb);
    std::uint32_t packed = gather_bytes(ranks, 0x62);
    packed -= ((packed & negative) >> 7) & 0x01010101u;  // there is no -1
    return (packed ^ (negative & 0x7f7f7f7fu)) + (~negative & 0x7f7f7f7fu);
  }
}
template <int N>
__device__ __forceinline__ std::uint32_t square_codes(const std::uint32_t (&ranks)[N]) {
  if constexpr (N == 1) {
    return ranks[0] >> 16;
  } else {
    return gather_bytes(ranks, 0x62);
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

// m / (sqrt(v) * scale + eps) to a few ulp, without the care for numbers below 2^-126 that would
// double its instructions: eps is larger than their roots.
__device__ __forceinline__ float step_of(float m, float v, float scale, float eps) {
  float root = v, step = m;
#ifdef __CUDA_ARCH__
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(v));
  asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(step) : "f"(m), "f"(fmaf(root, scale, eps)));
#endif
  return step;
}

// What a lane has of one block: elements lane * N + [0, N) of every 32 * N. With N = 4 the block is
// whole and its addresses are aligned; with N = 1 it may be cut.
template <int N, class W, bool kMaster>
struct Piece {
  using U = Update<W, kMaster>;
  static constexpr int kAccesses = kPerLane / N, kSpan = 32 * N;

  Packed<float, N> g[kAccesses];
  Packed<typename U::Parameter, N> p[kAccesses];
  std::uint32_t m[kAccesses], v[kAccesses];
  float m_absmax, v_absmax;

  static __device__ __forceinline__ std::int64_t begin(std::int64_t block) {
    return block * kBlock + static_cast<int>(threadIdx.x) % 32 * N;
  }
  static __device__ __forceinline__ bool inside(const U& u, std::int64_t i) {
    return N > 1 || i < u.elements;
  }

  __device__ __forceinline__ void load(const U& u, std::int64_t block) {
#pragma unroll
    for (int a = 0; a < kAccesses; ++a) {
      const std::int64_t i = begin(block) + a * kSpan;
      if (inside(u, i)) {
        g[a] = Packed<float, N>::load(u.g + i);
        p[a] = Packed<typename U::Parameter, N>::load(u.parameter() + i);
        m[a] = load_codes<N>(u.m + i);
        v[a] = load_codes<N>(u.v + i);
      } else {
        g[a] = Packed<float, N>::zero();
        p[a] = Packed<typename U::Parameter, N>::zero();
        m[a] = MomentCode::kZero;
        v[a] = SquareCode::kZero;
      }
    }
    m_absmax = u.m_absmax[block];
    v_absmax = u.v_absmax[block];
  }

  __device__ __forceinline__ void update(const U& u, std::int64_t block,
                                         const SharedCodes& codes) const {
    float p_new[kAccesses][N], m_new[kAccesses][N], v_new[kAccesses][N];
    float m_max = 0.0f, v_max = 0.0f;
#pragma unroll
    for (int a = 0; a < kAccesses; ++a) {
      float g_now[N], p_now[N];
      g[a].unpack(g_now);
      p[a].unpack(p_now);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        // The fused products are written out, so that a CPU computes the same moments.
        const float d = g_now[j] * u.f.grad_scale;
        const float m_old = codes.moments.value((m[a] >> (8 * j)) & 0xffu) * m_absmax;
        const float v_old = codes.squares.value((v[a] >> (8 * j)) & 0xffu) * v_absmax;
        m_new[a][j] = fmaf(u.f.beta1, m_old, u.f.one_minus_beta1 * d);
        v_new[a][j] = fmaf(u.f.beta2, v_old, u.f.one_minus_beta2 * d * d);
        m_max = fmaxf(m_max, fabsf(m_new[a][j]));
        v_max = fmaxf(v_max, fabsf(v_new[a][j]));
        p_new[a][j] = fmaf(u.f.keep, p_now[j],
                           -step_of(u.f.step * m_new[a][j], v_new[a][j], u.f.root_scale, u.f.eps));
      }
    }
    m_max = warp_max(m_max);
    v_max = warp_max(v_max);
    const float m_scale = code_scale(m_max), v_scale = code_scale(v_max);

    const RowRounding row = element_row(u.key, u.first + block * kBlock);
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int a = 0; a < kAccesses; ++a) {
      const std::int64_t i = begin(block) + a * kSpan;
      if (!inside(u, i)) continue;
      std::uint32_t m_ranks[N], v_ranks[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        m_ranks[j] = codes.moments.rank_word(__saturatef(fabsf(m_new[a][j]) * m_scale));
        v_ranks[j] = codes.squares.rank_word(__saturatef(v_new[a][j] * v_scale));
      }
      store_codes<N>(moment_codes<N>(m_ranks, m_new[a]), u.m + i);
      store_codes<N>(square_codes<N>(v_ranks), u.v + i);
      if constexpr (kMaster) {
        store_floats<N>(p_new[a], u.master + i);
        if (u.weight != nullptr) store_floats<N>(p_new[a], u.weight + i);
      } else {
        store_stochastically<N>(p_new[a], row, static_cast<std::uint32_t>(lane * N + a * kSpan),
                                u.weight + i);
      }
    }
    if (lane == 0) u.m_absmax[block] = m_max;
    if (lane == 1) u.v_absmax[block] = v_max;
  }
};

// Blocks block, block + stride, ... before `end` by this warp. Whole blocks are loaded one ahead.
template <int N, class W, bool kMaster>
__device__ __forceinline__ void update_blocks(const Update<W, kMaster>& u, std::int64_t block,
                                              std::int64_t end, std::int64_t stride,
                                              const SharedCodes& codes) {
  if (block >= end) return;
  Piece<N, W, kMaster> now;
  now.load(u, block);
  while (true) {
    const std::int64_t next = block + stride;
    if constexpr (N == 1) {
      now.update(u, block, codes);
      if (next >= end) return;
      now.load(u, next);
    } else {
      Piece<N, W, kMaster> ahead;
      if (next < end) ahead.load(u, next);
      now.update(u, block, codes);
      if (next >= end) return;
      now = ahead;
    }
    block = next;
  }
}

template <int N, class W, bool kMaster>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    adamw_8bit_kernel(Update<W, kMaster> u, std::int64_t begin, std::int64_t end) {
  static_assert(kBlock == kRoundingRow);
  __shared__ SharedCodes codes;
  codes.moments.fill(device_moment_code);
  codes.squares.fill(device_square_code);
  __syncthreads();
  const std::int64_t stride = std::int64_t{gridDim.x} * kWarps;
  const std::int64_t warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  update_blocks<N>(u, begin + warp, end, stride, codes);
}

// Blocks [begin, end).
template <int N, class W, bool kMaster>
void launch_blocks(Stream& stream, const Update<W, kMaster>& u, std::int64_t begin,
                   std::int64_t end) {
  if (begin == end) return;
  const auto& queue = longstride::cuda::cuda_stream(stream);
  const unsigned grid = grid_size(std::min(
      ceil_div(end - begin, kWarps), std::int64_t{kBlocksPerProcessor} * queue.multiprocessors()));
  adamw_8bit_kernel<N, W, kMaster><<<grid, kThreads, 0, queue.handle()>>>(u, begin, end);
  LS_CUDA_LAUNCHED();
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
  const std::int64_t blocks = ceil_div(u.elements, kBlock);
  const std::int64_t whole = aligned({u.g, u.master, u.weight, u.m, u.v}) ? u.elements / kBlock : 0;
  launch_blocks<4>(stream, u, 0, whole);
  launch_blocks<1>(stream, u, whole, blocks);
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
