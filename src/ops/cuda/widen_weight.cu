// Widening quantized weights: the contract is in ops/quantize.h. Memory bound: a thread turns
// units of 8 codes into 8 values, so that a warp reads and writes contiguous runs, and has several
// units in flight. Rows whose lengths are not multiples of 8 go element by element.
#include <array>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"
#include "ops/quantize.h"
#include "tensor/block_formats.h"
#include "tensor/dynamic_code.h"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

__device__ const std::array<float, 16> kValues = kNf4Table;
__device__ const std::array<float, 256> kScaleValues = kDynamicMap;

// A source of units of N elements that share a block and a row: Inputs<N> are loaded first, values
// follow when they have arrived.
struct NestedScales {
  const std::uint8_t* codes;
  const float *nested, *offset;

  struct Loaded {
    std::uint8_t code;
    float nested, offset;
  };
  __device__ Loaded load(std::int64_t block) const {
    return {codes[block], nested[block / kNestedBlock], *offset};
  }
  __device__ static float value(const Loaded& from) {
    return __fadd_rn(__fmul_rn(kScaleValues.data()[from.code], from.nested), from.offset);
  }
};

struct WideScales {
  const float* scales;

  using Loaded = float;
  __device__ Loaded load(std::int64_t block) const { return scales[block]; }
  __device__ static float value(Loaded from) { return from; }
};

template <class Scales>
struct Nf4Source {
  const std::uint8_t* codes;
  Scales scales;

  template <int N>
  struct Inputs {
    std::uint32_t codes;  // the first element in the lowest byte's high half
    typename Scales::Loaded scale;
  };
  template <int N>
  __device__ Inputs<N> load(std::int64_t element, std::uint32_t) const {
    std::uint32_t word;
    if constexpr (N == 8) {
      word = *reinterpret_cast<const std::uint32_t*>(codes + element / 2);
    } else {
      const std::uint32_t pair = codes[element / 2];
      word = element % 2 == 0 ? pair : pair << 4;
    }
    return {word, scales.load(element / kNf4Block)};
  }
  template <int N>
  __device__ static void values(const Inputs<N>& inputs, const float* table, float (&y)[N]) {
    const float scale = Scales::value(inputs.scale);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int shift = i / 2 * 8 + (i % 2 == 0 ? 4 : 0);
      y[i] = __fmul_rn(table[(inputs.codes >> shift) & 15u], scale);
    }
  }
};

struct Int8Source {
  const std::int8_t* codes;
  const float* scales;

  template <int N>
  struct Inputs {
    std::uint32_t codes[N == 8 ? 2 : 1];
    float scale;
  };
  template <int N>
  __device__ Inputs<N> load(std::int64_t element, std::uint32_t row) const {
    Inputs<N> inputs;
    if constexpr (N == 8) {
      const uint2 words = *reinterpret_cast<const uint2*>(codes + element);
      inputs.codes[0] = words.x, inputs.codes[1] = words.y;
    } else {
      inputs.codes[0] = static_cast<std::uint8_t>(codes[element]);
    }
    inputs.scale = scales[row];
    return inputs;
  }
  template <int N>
  __device__ static void values(const Inputs<N>& inputs, const float*, float (&y)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto code = static_cast<std::int8_t>(inputs.codes[i / 4] >> (i % 4 * 8));
      y[i] = __fmul_rn(__fmul_rn(static_cast<float>(code), inputs.scale), kInt8Step);
    }
  }
};

// y in units of N: `units` in all, `row_units` per row, of which the first `weight_units` are the
// weight's.
template <int N, class Source, class E>
__global__ void __launch_bounds__(kThreads)
    widen_kernel(Source source, const E* tail, E* y, std::uint32_t units, std::uint32_t row_units,
                 std::uint32_t weight_units) {
  // 16 values in 16 banks: no two lanes collide.
  __shared__ float table[16];
  if (threadIdx.x < 16) table[threadIdx.x] = kValues.data()[threadIdx.x];
  __syncthreads();
  const std::uint32_t first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;
  const std::uint32_t tail_units = row_units - weight_units;
  typename Source::template Inputs<N> inputs[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t unit = first + u * kThreads, row = unit / row_units,
                        column = unit - row * row_units;
    if (unit < units && column < weight_units)
      inputs[u] = source.template load<N>(
          (std::int64_t{row} * weight_units + column) * std::int64_t{N}, row);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t unit = first + u * kThreads;
    if (unit >= units) return;
    const std::uint32_t row = unit / row_units, column = unit - row * row_units;
    E* const to = y + std::int64_t{unit} * N;
    if (column < weight_units) {
      float values[N];
      Source::template values<N>(inputs[u], table, values);
      store_floats<N>(values, to);
    } else {
      const std::int64_t at = std::int64_t{row} * tail_units + (column - weight_units);
      Packed<E, N>::load(tail + at * N).store(to);
    }
  }
}

template <class Source>
void widen(Stream& stream, const WidenWeight& args, const Source& source) {
  const std::int64_t O = args.q_OI.dim(0), I = args.q_OI.dim(1), W = args.y_OW.dim(1);
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();
  const bool vectors = I % 8 == 0 && W % 8 == 0 &&
                       aligned({args.q_OI.data(), args.tail_OR.data(), args.y_OW.data()});
  const std::int64_t width = vectors ? 8 : 1, units = O * W / width;
  // The last block counts past the end.
  LS_CHECK(units <= std::numeric_limits<std::int32_t>::max(), "a weight of {} elements",
           args.y_OW.elements());
  const unsigned blocks = grid_size(ceil_div(units, kThreads * kUnroll));
  dispatch_activation(args.y_OW.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    const E* const tail = args.tail_OR.present() ? args.tail_OR.as<E>() : nullptr;
    const auto launch = [&](auto n) {
      constexpr int N = decltype(n)::value;
      widen_kernel<N><<<blocks, kThreads, 0, queue>>>(
          source, tail, args.y_OW.as<E>(), static_cast<std::uint32_t>(units),
          static_cast<std::uint32_t>(W / N), static_cast<std::uint32_t>(I / N));
    };
    if (vectors)
      launch(std::integral_constant<int, 8>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace

void widen_weight(Stream& stream, const WidenWeight& args) {
  const BlockRecord parts = block_record(args.q_OI.dtype(), args.q_OI.shape());
  const auto* const record = static_cast<const std::byte*>(args.q_OI.data());
  LS_CHECK(aligned({record}), "a record must be aligned");
  const auto floats = [&](const BlockRecord::Part& part) {
    return reinterpret_cast<const float*>(record + part.offset);
  };
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(record);
  switch (args.q_OI.dtype()) {
    case DType::kNf4:
      return widen(
          stream, args,
          Nf4Source<NestedScales>{
              bytes, {bytes + parts.scales.offset, floats(parts.nested), floats(parts.offset)}});
    case DType::kNf4Wide:
      return widen(stream, args, Nf4Source<WideScales>{bytes, {floats(parts.scales)}});
    default:
      return widen(stream, args,
                   Int8Source{reinterpret_cast<const std::int8_t*>(record), floats(parts.scales)});
  }
}

}  // namespace longstride::ops::cuda
