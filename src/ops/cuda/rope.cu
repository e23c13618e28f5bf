// Rotary positions, storing keys and values into pages, and reading their gradients from pages: the
// contract is in ops/rope.h.    N = C/2 pairs of a head; pair i is elements i and i + N.
//
// An item of a token is W neighbouring pairs of one head. A row of threads walks the items of a
// token; short tokens share a block.
#include "ops/rope.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

using longstride::cuda::cuda_stream;

// The heads of T tokens and their angles. `sign` is -1 to rotate back.
struct Heads {
  const float *cos_TN, *sin_TN;
  std::int64_t T;
  int heads, N;
  float sign;
};

// Rotates W pairs (a, b) by the angles at `cos` and `sin`.
template <int W>
__device__ __forceinline__ void turn(const float* cos, const float* sin, float sign, float (&a)[W],
                                     float (&b)[W]) {
  float c[W], s[W];
  load_floats<W>(cos, c);
  load_floats<W>(sin, s);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const float x = a[j], y = b[j], sine = sign * s[j];
    a[j] = x * c[j] - y * sine;
    b[j] = y * c[j] + x * sine;
  }
}

// Calls f(token, angle, first) for each item of this thread: the index of its angles in the tables,
// and of its first element in the token's heads.
template <int W, class F>
__device__ __forceinline__ void for_items(const Heads& shape, F&& f) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (t >= shape.T) return;
  const unsigned per_head = static_cast<unsigned>(shape.N / W);
  const unsigned items = static_cast<unsigned>(shape.heads) * per_head;
  for (unsigned item = threadIdx.x; item < items; item += blockDim.x) {
    const unsigned head = item / per_head;
    const int pair = static_cast<int>(item - head * per_head) * W;
    f(t, t * shape.N + pair, static_cast<int>(head) * 2 * shape.N + pair);
  }
}

template <class E, int W>
__global__ void __launch_bounds__(256) rope_kernel(Heads shape, E* x_THC) {
  for_items<W>(shape, [&](std::int64_t t, std::int64_t angle, int first) {
    E* x = x_THC + t * shape.heads * 2 * shape.N + first;
    float a[W], b[W];
    load_floats<W>(x, a);
    load_floats<W>(x + shape.N, b);
    turn<W>(shape.cos_TN + angle, shape.sin_TN + angle, shape.sign, a, b);
    store_floats<W>(a, x);
    store_floats<W>(b, x + shape.N);
  });
}

// The pages of tokens [begin, begin + T), of elements S.
struct PageRows {
  std::byte* base;
  const std::int32_t* slots;  // of only those pages, on the device
  std::int64_t page_bytes;
  unsigned page_tokens;
  unsigned first;  // row of token `begin` in its page
  int row;         // K * C

  // The key row of token begin + t; its value row follows.
  template <class S>
  __device__ __forceinline__ S* keys(std::int64_t t) const {
    const unsigned at = first + static_cast<unsigned>(t), page = at / page_tokens;
    auto* tokens = reinterpret_cast<S*>(base + std::int64_t{slots[page]} * page_bytes);
    return tokens + std::int64_t{at - page * page_tokens} * 2 * row;
  }
};

template <class E, class S, int W>
__global__ void __launch_bounds__(256)
    append_kv_kernel(Heads shape, const E* __restrict__ k_TKC, const E* __restrict__ v_TKC,
                     PageRows pages) {
  for_items<W>(shape, [&](std::int64_t t, std::int64_t angle, int first) {
    const std::int64_t at = t * pages.row + first;
    float a[W], b[W], v[W], u[W];
    load_floats<W>(k_TKC + at, a);
    load_floats<W>(k_TKC + at + shape.N, b);
    load_floats<W>(v_TKC + at, v);
    load_floats<W>(v_TKC + at + shape.N, u);
    turn<W>(shape.cos_TN + angle, shape.sin_TN + angle, shape.sign, a, b);
    S* key = pages.keys<S>(t) + first;
    store_floats<W>(a, key);
    store_floats<W>(b, key + shape.N);
    store_floats<W>(v, key + pages.row);
    store_floats<W>(u, key + pages.row + shape.N);
  });
}

template <class E, class S, int W>
__global__ void __launch_bounds__(256)
    take_kv_gradient_kernel(Heads shape, PageRows pages, E* __restrict__ dk_TKC,
                            E* __restrict__ dv_TKC) {
  for_items<W>(shape, [&](std::int64_t t, std::int64_t angle, int first) {
    const S* dkey = pages.keys<S>(t) + first;
    float a[W], b[W], v[W], u[W];
    load_floats<W>(dkey, a);
    load_floats<W>(dkey + shape.N, b);
    load_floats<W>(dkey + pages.row, v);
    load_floats<W>(dkey + pages.row + shape.N, u);
    turn<W>(shape.cos_TN + angle, shape.sin_TN + angle, shape.sign, a, b);
    const std::int64_t at = t * pages.row + first;
    store_floats<W>(a, dk_TKC + at);
    store_floats<W>(b, dk_TKC + at + shape.N);
    store_floats<W>(v, dv_TKC + at);
    store_floats<W>(u, dv_TKC + at + shape.N);
  });
}

// An angle of up to 2^31 radians is first reduced to [-pi, pi]: the product with its rounding
// error, minus k times 2 pi in two parts. The first difference is exact. Unlike sincos, sincospi
// needs no long reduction, and no stack for it.
__global__ void __launch_bounds__(256)
    rope_tables_kernel(const std::int64_t* positions_T, const double* frequencies_N, std::int64_t T,
                       int N, double factor, float* cos_TN, float* sin_TN) {
  constexpr double kPi = 3.14159265358979323846, kTwoPi = 2 * kPi;
  constexpr double kTwoPiRest = 2.4492935982947064e-16;  // 2 pi minus its nearest double
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (t >= T) return;
  const auto position = static_cast<double>(positions_T[t]);
  for (int i = static_cast<int>(threadIdx.x); i < N; i += static_cast<int>(blockDim.x)) {
    const double product = position * frequencies_N[i];
    const double rest = fma(position, frequencies_N[i], -product);
    const double turns = rint(product * (1 / kTwoPi));
    const double angle = fma(-turns, kTwoPiRest, fma(-turns, kTwoPi, product)) + rest;
    double sine, cosine;
    sincospi(angle * (1 / kPi), &sine, &cosine);
    cos_TN[t * N + i] = static_cast<float>(cosine * factor);
    sin_TN[t * N + i] = static_cast<float>(sine * factor);
  }
}

Heads heads_of(const Shape& x_THC, const ConstView& cos_TN, const ConstView& sin_TN, bool inverse) {
  const std::int64_t H = x_THC[1], C = x_THC[2];
  LS_CHECK(H <= std::numeric_limits<std::int32_t>::max() / 2 / C, "{} heads of {}", H, C);
  return {cos_TN.as<float>(),  sin_TN.as<float>(),      x_THC[0],
          static_cast<int>(H), static_cast<int>(C / 2), inverse ? -1.0f : 1.0f};
}

// Uploads the slots of the chunk's pages to the device.
PageRows page_rows(Stream& stream, const PagesView& pages, std::int64_t begin, std::int64_t T) {
  const std::int64_t P = pages.page_tokens, first_page = begin / P, first = begin % P;
  LS_CHECK(P + T <= std::numeric_limits<std::int32_t>::max(), "{} tokens, pages of {}", T, P);
  const std::int32_t* slots =
      cuda_stream(stream).upload(pages.slots + first_page, ceil_div(first + T, P));
  return {pages.base,
          slots,
          pages.page_bytes,
          static_cast<unsigned>(P),
          static_cast<unsigned>(first),
          static_cast<int>(pages.row_elements())};
}

// Whether pieces of `width` elements of heads and pages are 16-byte aligned.
bool pages_aligned(const PagesView& pages, int width) {
  return aligned({pages.base}) && pages.page_bytes % 16 == 0 && pages.head_size % (2 * width) == 0;
}

struct Launch {
  dim3 threads;
  unsigned blocks;
};
Launch launch_for(const Heads& shape, int width) {
  const dim3 threads = threads_for_rows(std::int64_t{shape.heads} * (shape.N / width));
  return {threads, grid_size(ceil_div(shape.T, threads.y))};
}

}  // namespace

void rope_tables(Stream& stream, const RopeTables& args) {
  const std::int64_t T = args.positions_T.dim(0), N = args.frequencies_N.dim(0);
  LS_CHECK(N <= std::numeric_limits<std::int32_t>::max() / 2, "{} frequencies", N);
  if (T * N == 0) return;
  const dim3 threads = threads_for_rows(N);
  rope_tables_kernel<<<grid_size(ceil_div(T, threads.y)), threads, 0,
                       cuda_stream(stream).handle()>>>(
      args.positions_T.as<std::int64_t>(), args.frequencies_N.as<double>(), T, static_cast<int>(N),
      args.attention_factor, args.cos_TN.as<float>(), args.sin_TN.as<float>());
  LS_CUDA_LAUNCHED();
}

void rope(Stream& stream, const Rope& args) {
  if (args.x_THC.elements() == 0) return;
  const Heads shape = heads_of(args.x_THC.shape(), args.cos_TN, args.sin_TN, args.inverse);
  const cudaStream_t queue = cuda_stream(stream).handle();
  dispatch_activation(args.x_THC.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    constexpr int kWidth = vector_width<E>;
    E* x_THC = args.x_THC.as<E>();
    const bool fast = shape.N % kWidth == 0 && aligned({x_THC, shape.cos_TN, shape.sin_TN});
    const Launch launch = launch_for(shape, fast ? kWidth : 1);
    if (fast) {
      rope_kernel<E, kWidth><<<launch.blocks, launch.threads, 0, queue>>>(shape, x_THC);
    } else {
      rope_kernel<E, 1><<<launch.blocks, launch.threads, 0, queue>>>(shape, x_THC);
    }
  });
  LS_CUDA_LAUNCHED();
}

void append_kv(Stream& stream, const AppendKv& args) {
  if (args.k_TKC.elements() == 0) return;
  const Heads shape = heads_of(args.k_TKC.shape(), args.cos_TN, args.sin_TN, false);
  const PageRows pages = page_rows(stream, args.pages, args.begin, shape.T);
  const cudaStream_t queue = cuda_stream(stream).handle();
  dispatch_activation(args.k_TKC.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    dispatch_weight(args.pages.dtype, [&](auto stored) {
      using S = typename decltype(stored)::type;
      constexpr int kWidth = vector_width<E, S>;
      const E *k_TKC = args.k_TKC.as<E>(), *v_TKC = args.v_TKC.as<E>();
      const bool fast =
          pages_aligned(args.pages, kWidth) && aligned({k_TKC, v_TKC, shape.cos_TN, shape.sin_TN});
      const Launch launch = launch_for(shape, fast ? kWidth : 1);
      if (fast) {
        append_kv_kernel<E, S, kWidth>
            <<<launch.blocks, launch.threads, 0, queue>>>(shape, k_TKC, v_TKC, pages);
      } else {
        append_kv_kernel<E, S, 1>
            <<<launch.blocks, launch.threads, 0, queue>>>(shape, k_TKC, v_TKC, pages);
      }
    });
  });
  LS_CUDA_LAUNCHED();
}

void take_kv_gradient(Stream& stream, const TakeKvGradient& args) {
  if (args.dk_TKC.elements() == 0) return;
  const Heads shape = heads_of(args.dk_TKC.shape(), args.cos_TN, args.sin_TN, true);
  const PageRows pages = page_rows(stream, args.pages, args.begin, shape.T);
  const cudaStream_t queue = cuda_stream(stream).handle();
  dispatch_activation(args.dk_TKC.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    dispatch_weight(args.pages.dtype, [&](auto stored) {
      using S = typename decltype(stored)::type;
      constexpr int kWidth = vector_width<E, S>;
      E *dk_TKC = args.dk_TKC.as<E>(), *dv_TKC = args.dv_TKC.as<E>();
      const bool fast = pages_aligned(args.pages, kWidth) &&
                        aligned({dk_TKC, dv_TKC, shape.cos_TN, shape.sin_TN});
      const Launch launch = launch_for(shape, fast ? kWidth : 1);
      if (fast) {
        take_kv_gradient_kernel<E, S, kWidth>
            <<<launch.blocks, launch.threads, 0, queue>>>(shape, pages, dk_TKC, dv_TKC);
      } else {
        take_kv_gradient_kernel<E, S, 1>
            <<<launch.blocks, launch.threads, 0, queue>>>(shape, pages, dk_TKC, dv_TKC);
      }
    });
  });
  LS_CUDA_LAUNCHED();
}

}  // namespace longstride::ops::cuda
