// The instructions of the matrix units and of asynchronous copies (sm_80 and up), one function
// each. Independent of attention; no other file contains assembly for them.
//
// g = lane / 4 and t = lane % 4 in the layouts below.
#pragma once

#include <cstddef>
#include <cstdint>

namespace longstride::ops::cuda {

// 16 x 16 elements of BF16 over a warp, two in a register: quarters (rows 0-7, columns 0-7),
// (8-15, 0-7), (0-7, 8-15), (8-15, 8-15); in each a lane has row g, columns 2t and 2t + 1. This is
// the left operand of multiply_add.
struct alignas(16) Fragment {
  std::uint32_t quarters[4];
};

__device__ __forceinline__ std::byte* dynamic_shared() {
  extern __shared__ __align__(1024) std::byte dynamic_shared_memory[];
  return dynamic_shared_memory;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// Lane i passes the address of 16 bytes: row i % 16, and its columns 0-7 (i < 16) or 8-15.
__device__ __forceinline__ Fragment load_fragment(std::uint32_t row) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(f.quarters[0]), "=r"(f.quarters[1]), "=r"(f.quarters[2]), "=r"(f.quarters[3])
               : "r"(row));
  return f;
}

// The same with each quarter transposed in its place.
__device__ __forceinline__ Fragment load_fragment_transposed(std::uint32_t row) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(f.quarters[0]), "=r"(f.quarters[1]), "=r"(f.quarters[2]), "=r"(f.quarters[3])
               : "r"(row));
  return f;
}

// c += a b for a of 16 x 16 and b of 16 x 8: b0 holds rows 2t and 2t + 1 of column g, b1 the same
// of rows 8-15. c: (row g, columns 2t and 2t + 1), then row g + 8.
__device__ __forceinline__ void multiply_add(float (&c)[4], const Fragment& a, std::uint32_t b0,
                                             std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.quarters[0]), "r"(a.quarters[1]), "r"(a.quarters[2]), "r"(a.quarters[3]), "r"(b0),
        "r"(b1));
}

// Two floats as BF16, rounded to nearest even; `low` is the first in memory.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ float low_bf16(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_bf16(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// 2^x to about 2 units in the last place; 0 for -infinity.
__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// Hides the origin of x from the compiler: values derived from it are recomputed where they are
// used, and not kept in registers across a loop that has none to spare.
__device__ __forceinline__ unsigned computed_anew(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Asynchronous copies to shared memory. If not `present`, they write zeros and read nothing. Copies
// of 16 bytes bypass the L1 cache.
__device__ __forceinline__ void copy_16_async(std::uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(present ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_8_async(std::uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(present ? 8 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_4_async(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
// Waits for all copies of this thread; other threads see them after a barrier.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;\n" ::: "memory");
}
// Commits this thread's copies since the last call as a group, which may be empty.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits for all groups of this thread but the last kGroups.
template <int kGroups>
__device__ __forceinline__ void wait_for_copies_but() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroups) : "memory");
}

// Barriers among some warps of a block, kThreads threads in all; number 0 is __syncthreads'.
// Threads that arrive continue at once; threads that wait see what those wrote before.
template <int kBarrier, int kThreads>
__device__ __forceinline__ void barrier_arrive() {
  asm volatile("bar.arrive %0, %1;\n" ::"n"(kBarrier), "n"(kThreads) : "memory");
}
template <int kBarrier, int kThreads>
__device__ __forceinline__ void barrier_wait() {
  asm volatile("bar.sync %0, %1;\n" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

}  // namespace longstride::ops::cuda
