// Shared parts of the memory-bound kernels: elements of F32, BF16 or F16 as floats, 16 bytes at a
// time; sums over threads in an order that depends on shapes alone; dispatch from a DType to a C++
// type.
//
// A kernel is written for N elements per access. Its fast path has vector_width<...> of them and
// requires 16-byte aligned pointers; otherwise N is 1.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "tensor/dtype.h"

namespace longstride::ops::cuda {

// Elements per access: 16 bytes of the widest type involved.
template <class... Elements>
inline constexpr int vector_width = 16 / static_cast<int>(std::max({sizeof(Elements)...}));

// Prefetches into the L2 cache; takes no register and needs no wait.
__device__ __forceinline__ void prefetch(const void* address) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#else
  (void)address;
#endif
}

// N elements in registers, packed as in memory.
template <class E, int N>
struct Packed {
  static constexpr int kBytes = N * static_cast<int>(sizeof(E));
  using Unit = std::conditional_t<kBytes % 4 == 0, std::uint32_t, std::uint16_t>;
  static constexpr int kUnits = kBytes / static_cast<int>(sizeof(Unit));
  static_assert(kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes % 16 == 0);

  Unit units[kUnits];

  static __device__ __forceinline__ Packed zero() {
    Packed p;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) p.units[i] = 0;
    return p;
  }

  static __device__ __forceinline__ Packed load(const E* from) {
    Packed p;
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        const uint4 v = reinterpret_cast<const uint4*>(from)[i];
        p.units[4 * i] = v.x, p.units[4 * i + 1] = v.y;
        p.units[4 * i + 2] = v.z, p.units[4 * i + 3] = v.w;
      }
    } else if constexpr (kBytes == 8) {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      p.units[0] = v.x, p.units[1] = v.y;
    } else {
      p.units[0] = *reinterpret_cast<const Unit*>(from);
    }
    return p;
  }

  __device__ __forceinline__ void store(E* to) const {
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        reinterpret_cast<uint4*>(to)[i] =
            make_uint4(units[4 * i], units[4 * i + 1], units[4 * i + 2], units[4 * i + 3]);
      }
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(units[0], units[1]);
    } else {
      *reinterpret_cast<Unit*>(to) = units[0];
    }
  }

  __device__ __forceinline__ void unpack(float (&to)[N]) const {
    if constexpr (std::is_same_v<E, float>) {
#pragma unroll
      for (int i = 0; i < N; ++i) to[i] = __uint_as_float(units[i]);
    } else if constexpr (N == 1) {
      to[0] = std::is_same_v<E, bf16> ? __uint_as_float(std::uint32_t{units[0]} << 16)
                                      : __half2float(__ushort_as_half(units[0]));
    } else {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        if constexpr (std::is_same_v<E, bf16>) {
          to[2 * i] = __uint_as_float(units[i] << 16);
          to[2 * i + 1] = __uint_as_float(units[i] & 0xffff0000u);
        } else {
          const float2 pair = __half22float2(reinterpret_cast<const __half2&>(units[i]));
          to[2 * i] = pair.x, to[2 * i + 1] = pair.y;
        }
      }
    }
  }

  // Rounds to nearest even.
  static __device__ __forceinline__ Packed pack(const float (&from)[N]) {
    Packed p;
    if constexpr (std::is_same_v<E, float>) {
#pragma unroll
      for (int i = 0; i < N; ++i) p.units[i] = __float_as_uint(from[i]);
    } else if constexpr (N == 1) {
      p.units[0] = std::is_same_v<E, bf16> ? __bfloat16_as_ushort(__float2bfloat16_rn(from[0]))
                                           : __half_as_ushort(__float2half_rn(from[0]));
    } else {
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        const float low = from[2 * i], high = from[2 * i + 1];
        if constexpr (std::is_same_v<E, bf16>) {
          const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
          p.units[i] = reinterpret_cast<const std::uint32_t&>(pair);
        } else {
          const __half2 pair = __floats2half2_rn(low, high);
          p.units[i] = reinterpret_cast<const std::uint32_t&>(pair);
        }
      }
    }
    return p;
  }
};

template <int N, class E>
__device__ __forceinline__ void load_floats(const E* from, float (&to)[N]) {
  Packed<E, N>::load(from).unpack(to);
}

template <int N, class E>
__device__ __forceinline__ void store_floats(const float (&from)[N], E* to) {
  Packed<E, N>::pack(from).store(to);
}

// The sum over groups of kLanes neighbouring lanes, the same bits in every lane. All lanes of the
// warp take part.
template <int kLanes, class T>
__device__ __forceinline__ T lanes_sum(T value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

inline constexpr int kMaxWarps = 32;  // of a block

// Replaces each value by its sum over the block, the same bits in every thread: lanes, then warps.
// It has one barrier inside, so `shared` may be reused only after another one.
template <int kValues, class T>
__device__ __forceinline__ void block_sum(T (&values)[kValues], T (&shared)[kValues][kMaxWarps]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    values[i] = lanes_sum<32>(values[i]);
    if (lane == 0) shared[i][warp] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kValues; ++i)
    values[i] = lanes_sum<32>(lane < warps ? shared[i][lane] : T{0});
}

// ---- on the host

// Whether all pointers are 16-byte aligned.
inline bool aligned(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The first dimension of a grid, the only one that may be large.
inline unsigned grid_size(std::int64_t blocks) {
  LS_CHECK(blocks > 0 && blocks <= std::numeric_limits<std::int32_t>::max(), "{} blocks", blocks);
  return static_cast<unsigned>(blocks);
}

// The threads of a block as (items of a row, rows): at most 256 in all; every thread of a row gets
// the same number of items if possible.
inline dim3 threads_for_rows(std::int64_t items) {
  constexpr std::int64_t kThreads = 256;
  const std::int64_t rounds = std::max<std::int64_t>(1, ceil_div(items, kThreads));
  const std::int64_t x = std::max<std::int64_t>(1, ceil_div(ceil_div(items, rounds), 32)) * 32;
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(kThreads / x));
}

// Calls f(std::type_identity<E>) for the type E of activations: F32 or BF16.
template <class F>
void dispatch_activation(DType t, F&& f) {
  switch (t) {
    case DType::kF32:
      return f(std::type_identity<float>{});
    case DType::kBF16:
      return f(std::type_identity<bf16>{});
    default:
      LS_CHECK(false, "no activation can be {}", name_of(t));
  }
}

// The same for weights and pages: F32, BF16 or F16.
template <class F>
void dispatch_weight(DType t, F&& f) {
  switch (t) {
    case DType::kF32:
      return f(std::type_identity<float>{});
    case DType::kBF16:
      return f(std::type_identity<bf16>{});
    case DType::kF16:
      return f(std::type_identity<f16>{});
    default:
      LS_CHECK(false, "no weight can be {}", name_of(t));
  }
}

}  // namespace longstride::ops::cuda
