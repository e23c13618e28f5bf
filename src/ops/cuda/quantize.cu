// Quantizing weights: the contract is in ops/quantize.h. It happens once, at load.
//
// Every step is one F32 operation that rounds to nearest: nothing may be fused or approximated.
#include "ops/quantize.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"
#include "ops/quantize_bounds.h"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__constant__ const std::array<float, 15> kBounds = kNf4Bounds;
__device__ const std::array<float, 255> kScaleBounds = kDynamicBounds;

template <class E>
__device__ float load_one(const E* x) {
  float value[1];
  load_floats<1>(x, value);
  return value[0];
}

__device__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// The largest of the block's values, in every thread. `shared` may be reused after a barrier.
__device__ float block_max(float x, float (&shared)[kWarps]) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float largest = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, shared[w]);
  return largest;
}

// Divides the values of a block by its largest magnitude: one that the end cuts short in earnest,
// the others by multiplying with the reciprocal.
struct Divisor {
  bool whole;
  float divisor, reciprocal;

  __device__ float operator()(float x) const {
    return whole ? __fmul_rn(x, reciprocal) : __fdiv_rn(x, divisor);
  }
  // The scale to store.
  __device__ float stored(float largest) const { return whole ? largest : divisor; }
};

__device__ Divisor divide_by(float largest, bool whole) {
  const float divisor = fmaxf(largest, kLeastScale);
  return {whole, divisor, __fdiv_rn(1.0f, divisor)};
}

__device__ unsigned nf4_code(float x) {
  unsigned code = 0;
#pragma unroll
  for (int i = 0; i < 15; ++i) code += kBounds.data()[i] < x ? 1u : 0u;
  return code;
}

// A warp per block of 64 elements, two neighbours per lane; `scales` in F32.
template <class E>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks_kernel(const E* w, std::int64_t n, std::uint8_t* codes, float* scales) {
  const std::int64_t block = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const std::int64_t first = block * kNf4Block;
  if (first >= n) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t i = first + 2 * lane;
  const float a = i < n ? load_one(w + i) : 0.0f, b = i + 1 < n ? load_one(w + i + 1) : 0.0f;
  const float largest = warp_max(fmaxf(fabsf(a), fabsf(b)));
  const Divisor divide = divide_by(largest, first + kNf4Block <= n);
  if (lane == 0) scales[block] = divide.stored(largest);
  if (i < n)
    codes[i / 2] = static_cast<std::uint8_t>(nf4_code(divide(a)) << 4 | nf4_code(divide(b)));
}

// One warp: lane c adds column c of rows of 32, in the four levels of PyTorch's reduction on the
// CPU, then the columns are added in its order.
__global__ void mean_kernel(const float* x, std::int64_t n, int power, float* mean) {
  constexpr int kLevels = 4, kBatch = 16;
  const int c = static_cast<int>(threadIdx.x);
  const std::int64_t rows = n / 32, step = std::int64_t{1} << power, mask = step - 1;
  float sums[kLevels] = {};
  std::int64_t row = 0;
  while (row + step <= rows) {
    for (std::int64_t end = row + step; row < end; row += kBatch) {  // step is a multiple of 16
      float values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) values[i] = x[(row + i) * 32 + c];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) sums[0] = __fadd_rn(sums[0], values[i]);
    }
    bool done = false;
#pragma unroll
    for (int level = 1; level < kLevels; ++level) {
      if (!done) {
        sums[level] = __fadd_rn(sums[level], sums[level - 1]);
        sums[level - 1] = 0.0f;
        done = (row & (mask << (level * power))) != 0;
      }
    }
  }
  for (; row < rows; ++row) sums[0] = __fadd_rn(sums[0], x[row * 32 + c]);
#pragma unroll
  for (int level = 1; level < kLevels; ++level) sums[0] = __fadd_rn(sums[0], sums[level]);
  __shared__ float columns[32];
  columns[c] = sums[0];
  __syncwarp();
  if (c != 0) return;
  for (std::int64_t i = rows * 32; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) columns[k] = __fadd_rn(columns[k], x[i + k]);
  for (int k = 8; k < 32; ++k) columns[k % 8] = __fadd_rn(columns[k % 8], columns[k]);
  float sum = 0.0f;
  for (std::int64_t i = n / 8 * 8; i < n; ++i) sum = __fadd_rn(sum, x[i]);
  for (int k = 0; k < 8; ++k) sum = __fadd_rn(sum, columns[k]);
  *mean = __fdiv_rn(sum, static_cast<float>(n));
}

// A block of threads per block of scales.
__global__ void __launch_bounds__(kThreads)
    quantize_scales_kernel(const float* scales, std::int64_t n, const float* mean,
                           std::uint8_t* codes, float* nested) {
  static_assert(kThreads == kNestedBlock);
  __shared__ float shared[kWarps];
  const std::int64_t first = std::int64_t{blockIdx.x} * kNestedBlock, i = first + threadIdx.x;
  const float x = i < n ? __fsub_rn(scales[i], *mean) : 0.0f;
  const float largest = block_max(fabsf(x), shared);
  const Divisor divide = divide_by(largest, first + kNestedBlock <= n);
  if (threadIdx.x == 0) nested[blockIdx.x] = divide.stored(largest);
  if (i >= n) return;
  // The number of bounds below x, by halving.
  const float value = divide(x);
  int code = 0;
#pragma unroll
  for (int half = 128; half > 0; half /= 2)
    if (kScaleBounds.data()[code + half - 1] < value) code += half;
  codes[i] = static_cast<std::uint8_t>(code);
}

// A block of threads per row.
template <class E>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(const E* w, std::int64_t columns, std::int8_t* codes, float* scales) {
  __shared__ float shared[kWarps];
  const std::int64_t first = std::int64_t{blockIdx.x} * columns;
  float largest = 0.0f;
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads)
    largest = fmaxf(largest, fabsf(load_one(w + first + i)));
  largest = block_max(largest, shared);
  if (threadIdx.x == 0) scales[blockIdx.x] = largest;
  const float factor = __fmul_rn(__fdiv_rn(1.0f, largest), 127.0f);  // in this order
  const bool zeros = !isfinite(factor);
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const float x = load_one(w + first + i);
    codes[first + i] =
        zeros ? std::int8_t{0} : static_cast<std::int8_t>(__float2int_rn(__fmul_rn(x, factor)));
  }
}

// How many rows PyTorch adds on the lowest level, as a power of two.
int level_power(std::int64_t rows) {
  int log = 0;
  while (rows > std::int64_t{1} << log) ++log;
  return std::max(4, log / 4);
}

}  // namespace

void quantize_weight(Stream& stream, const QuantizeWeight& args) {
  const DType format = args.q_OI.dtype();
  const BlockRecord parts = block_record(format, args.q_OI.shape());
  const std::int64_t n = args.w_OI.elements();
  auto* const record = static_cast<std::byte*>(args.q_OI.data());
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  LS_CHECK(aligned({record}), "a record must be aligned");
  float* const scales = format == DType::kNf4
                            ? args.scratch.as<float>()
                            : reinterpret_cast<float*>(record + parts.scales.offset);
  dispatch_weight(args.w_OI.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    const E* const w = args.w_OI.as<E>();
    if (format == DType::kInt8Rows)
      quantize_rows_kernel<<<grid_size(args.w_OI.dim(0)), kThreads, 0, queue>>>(
          w, args.w_OI.dim(1), reinterpret_cast<std::int8_t*>(record), scales);
    else
      quantize_blocks_kernel<<<grid_size(ceil_div(n, kNf4Block * kWarps)), kThreads, 0, queue>>>(
          w, n, reinterpret_cast<std::uint8_t*>(record), scales);
  });
  LS_CUDA_LAUNCHED();
  if (format != DType::kNf4) return;
  const std::int64_t blocks = parts.scales.bytes;
  auto* const mean = reinterpret_cast<float*>(record + parts.offset.offset);
  mean_kernel<<<1, 32, 0, queue>>>(scales, blocks, level_power(blocks / 32), mean);
  LS_CUDA_LAUNCHED();
  quantize_scales_kernel<<<grid_size(ceil_div(blocks, kNestedBlock)), kThreads, 0, queue>>>(
      scales, blocks, mean, reinterpret_cast<std::uint8_t*>(record + parts.scales.offset),
      reinterpret_cast<float*>(record + parts.nested.offset));
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
