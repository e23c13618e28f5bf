// Products by a warpgroup: 128 threads, whose first warp's number is a multiple of 4 (wgmma, for
// sm_90a alone: where LS_WARPGROUPS is not defined, kernels must not be called). Both operands are
// in shared memory.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/matrix_unit.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LS_WARPGROUPS
#endif

namespace longstride::ops::cuda {

inline constexpr int kWarpgroupThreads = 128, kWarpgroupRows = 64;

// Whether the device runs code with LS_WARPGROUPS for this kernel. Compiling for sm_90a defines
// LS_SM90A (cmake/cuda.cmake); code for other GPUs then reports another version.
template <class Kernel>
bool runs_warpgroups([[maybe_unused]] Kernel kernel) {
#ifdef LS_SM90A
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion == 90 &&
         attributes.binaryVersion == 90;
#else
  return false;
#endif
}

// Rows of BF16 as the unit reads them: panels of 64 columns, in each kRows rows of 128 bytes, whose
// 16-byte pieces are permuted by the row's number. Begins at a multiple of 1024 bytes.
template <int kC, int kRows>
struct PanelTile {
  static_assert(kC % 64 == 0 && kRows % 8 == 0);
  static constexpr int kPieces = kC / 8, kPanelBytes = kRows * 128, kBytes = kC / 64 * kPanelBytes;

  static constexpr __host__ __device__ int offset(int row, int piece) {
    return piece / 8 * kPanelBytes + row * 128 + (piece % 8 ^ (row & 7)) * 16;
  }
  // This lane's row of columns [16 block, 16 block + 16) of the first 16 rows, for load_fragment.
  static constexpr __host__ __device__ int lane_offset(int lane, int block) {
    return offset(lane & 15, 2 * block + (lane >> 4));
  }
};

#ifdef LS_WARPGROUPS

// Makes this thread's writes to shared memory visible to the unit; before a barrier.
__device__ __forceinline__ void show_to_unit() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Keeps the compiler from moving uses of x across this point.
template <int kN>
__device__ __forceinline__ void pin_registers(float (&x)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(x[n][i])::"memory");
}

// The first 64 columns of the products of 64 rows with 128, and the others. A lane has of its
// warp's 16 rows g = lane / 4 and g + 8, and of every 8 columns 2t and 2t + 1 (t = lane % 4), as in
// multiply_add.
struct TileProducts {
  float first[8][4], second[8][4];
};

// s (+)= a b^T for 64 rows of a and 128 of b, 16 columns each; asynchronous.
__device__ __forceinline__ void start_product(TileProducts& s, std::uint64_t a, std::uint64_t b,
                                              bool add) {
#define LS_FOUR(h, n) "+f"(s.h[n][0]), "+f"(s.h[n][1]), "+f"(s.h[n][2]), "+f"(s.h[n][3])
#define LS_HALF(h)                                                                          \
  LS_FOUR(h, 0), LS_FOUR(h, 1), LS_FOUR(h, 2), LS_FOUR(h, 3), LS_FOUR(h, 4), LS_FOUR(h, 5), \
      LS_FOUR(h, 6), LS_FOUR(h, 7)
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;\n}\n"
      : LS_HALF(first), LS_HALF(second)
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
#undef LS_HALF
#undef LS_FOUR
}

// How the unit is told of rows in a panel: address, permutation over 128 bytes, 1024 bytes from 8
// rows to the next 8.
__device__ __forceinline__ std::uint64_t panel_rows(std::uint32_t rows) {
  return std::uint64_t{rows >> 4 & 0x3fff} | std::uint64_t{1} << 16 | std::uint64_t{64} << 32 |
         std::uint64_t{1} << 62;
}

// Starts s = products of 64 rows of one tile with the 128 rows of another. Until wait_for_products
// neither may change.
template <class Left, class Right>
__device__ __forceinline__ void start_products(std::uint32_t left, std::uint32_t right,
                                               TileProducts& s) {
  static_assert(Left::kPieces == Right::kPieces);
  const std::uint64_t a = panel_rows(left), b = panel_rows(right);
  pin_registers(s.first);
  pin_registers(s.second);
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
  for (int k = 0; k < Left::kPieces / 2; ++k)
    start_product(s, a + (k / 4 * Left::kPanelBytes + k % 4 * 32) / 16,
                  b + (k / 4 * Right::kPanelBytes + k % 4 * 32) / 16, k > 0);
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits for all products that were started. Compilers follow them within the body of a loop only:
// none may be under way at its end.
__device__ __forceinline__ void wait_for_products(TileProducts& s) {
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  pin_registers(s.first);
  pin_registers(s.second);
}

// Barriers in shared memory (8 bytes) that warps of a block arrive at and wait for at different
// times. A phase ends when `arrivals` threads have arrived; phases are counted from 0.
__device__ __forceinline__ void shared_barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals)
               : "memory");
}
// What this thread wrote before is visible to threads that have waited.
__device__ __forceinline__ void shared_barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
// Until phase `phase` has ended; the phase before has.
__device__ __forceinline__ void shared_barrier_wait(std::uint32_t barrier, int phase) {
  asm volatile(
      "{\n.reg .pred ended;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra done;\nbra again;\ndone:\n}\n" ::"r"(barrier),
      "r"(phase & 1)
      : "memory");
}

// Waits for the other warps of this warp's warpgroup.
__device__ __forceinline__ void warpgroup_barrier(int warp) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(1 + warp / 4), "n"(kWarpgroupThreads) : "memory");
}

// From now on each thread of this warpgroup has so many registers; those that grow take what others
// of the block have given back.
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

#endif

}  // namespace longstride::ops::cuda
