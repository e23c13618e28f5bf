// How the RMS norm's kernels divide rows among threads, and read weights.    R rows of N elements.
//
// A team of threads holds a row in registers: 16 or 32 lanes of a warp for short rows, a block for
// long ones. The team, and so the order of sums, depends on N and the type alone.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {

inline constexpr std::int64_t kShortRow = 1024;  // elements of the longest row for a warp
inline constexpr int kBlockTeam = 0;             // instead of a number of lanes: the whole block
inline constexpr int kTeamsThreads = 256;        // of a block of short rows
inline constexpr int kMaxTeamThreads = 512;      // of a block that is one team

// The weights' type is checked at run time: there are few weights, and one kernel serves all types.
struct Weights {
  const void* data;
  DType dtype;
  float offset;  // added to every weight

  template <int N>
  __device__ __forceinline__ void load(std::int64_t i, float (&to)[N]) const {
    if (dtype == DType::kF32) {
      load_floats<N>(static_cast<const float*>(data) + i, to);
    } else if (dtype == DType::kBF16) {
      load_floats<N>(static_cast<const bf16*>(data) + i, to);
    } else {
      load_floats<N>(static_cast<const f16*>(data) + i, to);
    }
    if (offset != 0.0f) {
#pragma unroll
      for (int j = 0; j < N; ++j) to[j] += offset;
    }
  }
  // Zeros beyond the end.
  template <int N>
  __device__ __forceinline__ void load_within(int i, int end, float (&to)[N]) const {
    if (i < end) {
      load(i, to);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) to[j] = 0;
    }
  }
};

// A thread's index in its team, and the sum over a team.
template <int kLanes>
struct Team {
  static constexpr bool kIsBlock = kLanes == kBlockTeam;
  static constexpr int kMaxThreads = kIsBlock ? kMaxTeamThreads : kTeamsThreads;
  static constexpr int kMost = kIsBlock ? kMaxTeamThreads : kLanes;  // threads of a team
  static constexpr int kPerBlock = kMaxThreads / kMost;

  static __device__ int index() { return kIsBlock ? 0 : static_cast<int>(threadIdx.x) / kMost; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kMost; }
  static __device__ int threads() { return kIsBlock ? static_cast<int>(blockDim.x) : kLanes; }

  template <int kValues>
  static __device__ __forceinline__ void sum(float (&values)[kValues],
                                             float (&shared)[kValues][kMaxWarps]) {
    if constexpr (kIsBlock) {
      block_sum(values, shared);
    } else {
#pragma unroll
      for (int i = 0; i < kValues; ++i) values[i] = lanes_sum<kLanes>(values[i]);
    }
  }
};

// Vector v of a lane begins at this column; the last ones may be beyond the row.
template <int kLanes, int kWidth>
__device__ __forceinline__ int column_of(int v) {
  return (v * Team<kLanes>::threads() + Team<kLanes>::lane()) * kWidth;
}

// Calls f(lanes, vectors), both integral constants, for the team that holds rows of N elements;
// returns false if none can. A thread of a block gets at least kFewest vectors.
template <class E, int kFewest, class F>
bool with_team(std::int64_t N, F&& f) {
  using std::integral_constant;
  if (N % vector_width<E> != 0) return false;
  const std::int64_t vectors = N / vector_width<E>;
  if (vectors <= 16) {
    f(integral_constant<int, 16>{}, integral_constant<int, 1>{});
  } else if (vectors <= 32) {
    f(integral_constant<int, 32>{}, integral_constant<int, 1>{});
  } else if (vectors <= 4 * 32) {
    f(integral_constant<int, 32>{}, integral_constant<int, 4>{});
  } else if (N <= kShortRow) {
    f(integral_constant<int, 32>{}, integral_constant<int, 1024 / 32 / vector_width<E>>{});
  } else if (vectors <= kFewest * kMaxTeamThreads) {
    f(integral_constant<int, kBlockTeam>{}, integral_constant<int, kFewest>{});
  } else if (vectors <= 2 * kMaxTeamThreads) {
    f(integral_constant<int, kBlockTeam>{}, integral_constant<int, 2>{});
  } else if (vectors <= 4 * kMaxTeamThreads) {
    f(integral_constant<int, kBlockTeam>{}, integral_constant<int, 4>{});
  } else {
    return false;
  }
  return true;
}

template <class E>
unsigned team_threads(std::int64_t N, int lanes, int vectors) {
  if (lanes != kBlockTeam) return kTeamsThreads;
  return static_cast<unsigned>(ceil_div(N / vector_width<E>, std::int64_t{vectors} * 32) * 32);
}

}  // namespace longstride::ops::cuda
