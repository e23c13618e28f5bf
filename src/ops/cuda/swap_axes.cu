// The order of rows: the contract is in ops/swap_axes.h. A warp copies a row, in the largest units
// that rows and pointers are multiples of.
#include "ops/swap_axes.h"

#include <cuda_runtime.h>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kSwapThreads = 256;

template <class Unit>
__global__ void __launch_bounds__(kSwapThreads)
    swap_axes_kernel(const Unit* __restrict__ x, Unit* __restrict__ y, std::int64_t A,
                     std::int64_t B, std::int64_t units) {
  const std::int64_t row = (std::int64_t{blockIdx.x} * kSwapThreads + threadIdx.x) / 32;
  if (row >= A * B) return;
  const std::int64_t a = row / B, b = row - a * B;
  const Unit* const from = x + row * units;
  Unit* const to = y + (b * A + a) * units;
  for (std::int64_t i = threadIdx.x % 32; i < units; i += 32) to[i] = from[i];
}

template <class Unit>
void swap_rows(Stream& stream, const SwapAxes& args, std::int64_t row_bytes) {
  const std::int64_t A = args.x_ABC.dim(0), B = args.x_ABC.dim(1);
  swap_axes_kernel<Unit><<<grid_size(ceil_div(A * B * 32, kSwapThreads)), kSwapThreads, 0,
                           longstride::cuda::cuda_stream(stream).handle()>>>(
      static_cast<const Unit*>(args.x_ABC.data()), static_cast<Unit*>(args.y_BAC.data()), A, B,
      row_bytes / static_cast<std::int64_t>(sizeof(Unit)));
  LS_CUDA_LAUNCHED();
}

}  // namespace

void swap_axes(Stream& stream, const SwapAxes& args) {
  if (args.x_ABC.elements() == 0) return;
  const std::int64_t row_bytes = args.x_ABC.dim(2) * size_of(args.x_ABC.dtype());
  if (row_bytes % 16 == 0 && aligned({args.x_ABC.data(), args.y_BAC.data()}))
    swap_rows<uint4>(stream, args, row_bytes);
  else if (size_of(args.x_ABC.dtype()) % 4 == 0)  // what a pointer to its elements is aligned to
    swap_rows<std::uint32_t>(stream, args, row_bytes);
  else if (size_of(args.x_ABC.dtype()) % 2 == 0)
    swap_rows<std::uint16_t>(stream, args, row_bytes);
  else
    swap_rows<std::uint8_t>(stream, args, row_bytes);
}

}  // namespace longstride::ops::cuda
