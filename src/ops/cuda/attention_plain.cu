// Plain paged attention. Forward and dq: a block owns a tile of queries of one head and walks the
// visited pages in order. dk and dv: a block owns a tile of keys of one KV head and walks the heads
// of its group and the query pages that visit it, in order, then adds into the gradient page once.
// So no sum crosses blocks, and the order of additions is that of the lists.
//   M queries of a tile   N keys of a tile   C head size   P tokens of a page
#include "ops/cuda/attention_plain.h"

#include <cmath>

#include "device/cuda/check.h"
#include "ops/cuda/device_visits.h"
#include "ops/cuda/gradient_pages.cuh"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

using longstride::cuda::cuda_stream;

constexpr int kThreads = 256;
constexpr std::int64_t kMaxHeadSize = 256;

struct Sizes {
  std::int64_t T, H, K, C, P;
  float scale;
  __host__ __device__ std::int64_t group() const { return H / K; }
};

template <class E>
__device__ __forceinline__ float as_float(const E* at) {
  float x[1];
  load_floats<1>(at, x);
  return x[0];
}
template <class E>
__device__ __forceinline__ void put(E* at, float value) {
  const float x[1] = {value};
  store_floats<1>(x, at);
}

// Rows of `to` are C + 1 apart, so that a column falls into different banks.
template <int kTile, class E>
__device__ void load_tile(const E* from, std::int64_t stride, std::int64_t rows, std::int64_t C,
                          float* to) {
  for (std::int64_t i = threadIdx.x; i < kTile * C; i += kThreads) {
    const std::int64_t r = i / C, c = i % C;
    to[r * (C + 1) + c] = r < rows ? as_float(from + r * stride + c) : 0.0f;
  }
}

// First key or value (plane 0 or 1) of a head in a page.
template <class E>
__device__ __forceinline__ E* plane_of(const DevicePages& pages, std::int64_t page, int plane,
                                       std::int64_t kv_head) {
  return reinterpret_cast<E*>(pages.base + pages.slots[page] * pages.page_bytes) +
         (plane * pages.kv_heads + kv_head) * pages.head_size;
}

// s[m, n] = a[m] . b[n]
template <int kTile>
__device__ void products(const float* a, const float* b, std::int64_t C, float* s) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int m = i / kTile, n = i % kTile;
    float sum = 0;
    for (std::int64_t c = 0; c < C; ++c) sum = fmaf(a[m * (C + 1) + c], b[n * (C + 1) + c], sum);
    s[m * (kTile + 1) + n] = sum;
  }
}

// to[m, c] += sum over n of s[m, n] b[n, c]; with kTransposed, of s[n, m].
template <int kTile, bool kTransposed>
__device__ void add_products(const float* s, const float* b, std::int64_t C, float* to) {
  for (std::int64_t i = threadIdx.x; i < kTile * C; i += kThreads) {
    const std::int64_t m = i / C, c = i % C;
    float sum = to[m * (C + 1) + c];
#pragma unroll 8
    for (int n = 0; n < kTile; ++n)
      sum = fmaf(kTransposed ? s[n * (kTile + 1) + m] : s[m * (kTile + 1) + n], b[n * (C + 1) + c],
                 sum);
    to[m * (C + 1) + c] = sum;
  }
}

// A tile of queries of one page.
struct QueryTile {
  std::int64_t page, first, rows;  // first: index in the chunk
  template <int kTile>
  static __device__ QueryTile of(const Sizes& z, std::int64_t page, std::int64_t tile) {
    const std::int64_t end = min((page + 1) * z.P, z.T), first = page * z.P + tile * kTile;
    return {page, first, min(static_cast<std::int64_t>(kTile), end - first)};
  }
};

template <int kTile, class E>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Sizes z, const E* q_THC, DevicePages kv, DeviceVisits visits, E* out_THC,
                   float* lse_HT) {
  extern __shared__ float shared[];
  const std::int64_t C = z.C, tile_floats = kTile * (C + 1);
  float *q = shared, *k = q + tile_floats, *v = k + tile_floats, *o = v + tile_floats;
  float *s = o + tile_floats, *top = s + kTile * (kTile + 1), *sum = top + kTile,
        *shrink = sum + kTile;
  const std::int64_t tiles = (z.P + kTile - 1) / kTile, head = blockIdx.y;
  const QueryTile query = QueryTile::of<kTile>(z, blockIdx.x / tiles, blockIdx.x % tiles);
  if (query.rows <= 0) return;
  load_tile<kTile>(q_THC + (query.first * z.H + head) * C, z.H * C, query.rows, C, q);
  for (std::int64_t i = threadIdx.x; i < tile_floats; i += kThreads) o[i] = 0;
  if (threadIdx.x < kTile) top[threadIdx.x] = -INFINITY, sum[threadIdx.x] = 0;
  const std::int64_t begin = visits.chunk_begin + query.first, last = begin + query.rows - 1;
  for (std::int64_t i = visits.offsets[query.page]; i < visits.offsets[query.page + 1]; ++i) {
    const std::int64_t page = visits.kv_pages[i];
    const std::int64_t keys_end = min((page + 1) * z.P, visits.chunk_begin + z.T);
    for (std::int64_t key = page * z.P; key < keys_end; key += kTile) {
      const std::int64_t keys = min(static_cast<std::int64_t>(kTile), keys_end - key);
      if (key > last || key + keys <= visits.first_visible[query.first]) continue;
      const std::int64_t row = key % z.P * 2 * z.K * C;
      __syncthreads();
      load_tile<kTile>(plane_of<E>(kv, page, 0, head / z.group()) + row, 2 * z.K * C, keys, C, k);
      load_tile<kTile>(plane_of<E>(kv, page, 1, head / z.group()) + row, 2 * z.K * C, keys, C, v);
      __syncthreads();
      products<kTile>(q, k, C, s);
      __syncthreads();
      if (threadIdx.x < query.rows) {
        const int m = static_cast<int>(threadIdx.x);
        const std::int64_t first = visits.first_visible[query.first + m];
        float* row_s = s + m * (kTile + 1);
        float maximum = top[m], total = 0;
        for (int n = 0; n < kTile; ++n) {
          const bool seen = n < keys && key + n >= first && key + n <= begin + m;
          row_s[n] = seen ? row_s[n] * z.scale : -INFINITY;
          maximum = fmaxf(maximum, row_s[n]);
        }
        const float shift = maximum == -INFINITY ? 0.0f : maximum;
        for (int n = 0; n < kTile; ++n) total += row_s[n] = expf(row_s[n] - shift);
        shrink[m] = expf(top[m] - shift);
        sum[m] = sum[m] * shrink[m] + total;
        top[m] = maximum;
      }
      __syncthreads();
      for (std::int64_t j = threadIdx.x; j < query.rows * C; j += kThreads)
        o[j / C * (C + 1) + j % C] *= shrink[j / C];
      __syncthreads();
      add_products<kTile, false>(s, v, C, o);
    }
  }
  __syncthreads();
  for (std::int64_t j = threadIdx.x; j < query.rows * C; j += kThreads)
    put(out_THC + ((query.first + j / C) * z.H + head) * C + j % C,
        o[j / C * (C + 1) + j % C] / sum[j / C]);
  if (threadIdx.x < query.rows)
    lse_HT[head * z.T + query.first + threadIdx.x] = top[threadIdx.x] + logf(sum[threadIdx.x]);
}

// delta[h, t] = out . dout: one warp each.
template <class E>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(Sizes z, const E* out_THC, const E* dout_THC, float* delta_HT) {
  const std::int64_t row = (blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x) / 32;
  if (row >= z.T * z.H) return;
  float sum = 0;
  for (std::int64_t c = threadIdx.x % 32; c < z.C; c += 32)
    sum = fmaf(as_float(out_THC + row * z.C + c), as_float(dout_THC + row * z.C + c), sum);
  sum = lanes_sum<32>(sum);
  if (threadIdx.x % 32 == 0) delta_HT[row % z.H * z.T + row / z.H] = sum;
}

// Turns s into weights and dp into gradients of scores, both [query, key].
template <int kTile>
__device__ void score_gradients(const Sizes& z, const DeviceVisits& visits, const QueryTile& query,
                                std::int64_t head, std::int64_t key, std::int64_t keys,
                                const float* lse_HT, const float* delta_HT, float* s, float* dp) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int m = i / kTile, n = i % kTile;
    const std::int64_t t = query.first + m;
    float &weight = s[m * (kTile + 1) + n], &gradient = dp[m * (kTile + 1) + n];
    const bool seen = m < query.rows && n < keys && key + n >= visits.first_visible[t] &&
                      key + n <= visits.chunk_begin + t;
    weight = seen ? expf(weight * z.scale - lse_HT[head * z.T + t]) : 0.0f;
    gradient = seen ? weight * (gradient - delta_HT[head * z.T + t]) * z.scale : 0.0f;
  }
}

template <int kTile, class E>
__global__ void __launch_bounds__(kThreads)
    dq_kernel(Sizes z, const E* q_THC, const E* dout_THC, const float* lse_HT,
              const float* delta_HT, DevicePages kv, DeviceVisits visits, E* dq_THC) {
  extern __shared__ float shared[];
  const std::int64_t C = z.C, tile_floats = kTile * (C + 1);
  float *q = shared, *dout = q + tile_floats, *kv_tile = dout + tile_floats,
        *dq = kv_tile + tile_floats;
  float *s = dq + tile_floats, *dp = s + kTile * (kTile + 1);
  const std::int64_t tiles = (z.P + kTile - 1) / kTile, head = blockIdx.y;
  const QueryTile query = QueryTile::of<kTile>(z, blockIdx.x / tiles, blockIdx.x % tiles);
  if (query.rows <= 0) return;
  load_tile<kTile>(q_THC + (query.first * z.H + head) * C, z.H * C, query.rows, C, q);
  load_tile<kTile>(dout_THC + (query.first * z.H + head) * C, z.H * C, query.rows, C, dout);
  for (std::int64_t i = threadIdx.x; i < tile_floats; i += kThreads) dq[i] = 0;
  const std::int64_t last = visits.chunk_begin + query.first + query.rows - 1;
  for (std::int64_t i = visits.offsets[query.page]; i < visits.offsets[query.page + 1]; ++i) {
    const std::int64_t page = visits.kv_pages[i];
    const std::int64_t keys_end = min((page + 1) * z.P, visits.chunk_begin + z.T);
    for (std::int64_t key = page * z.P; key < keys_end; key += kTile) {
      const std::int64_t keys = min(static_cast<std::int64_t>(kTile), keys_end - key);
      if (key > last || key + keys <= visits.first_visible[query.first]) continue;
      const std::int64_t row = key % z.P * 2 * z.K * C;
      __syncthreads();
      load_tile<kTile>(plane_of<E>(kv, page, 1, head / z.group()) + row, 2 * z.K * C, keys, C,
                       kv_tile);
      __syncthreads();
      products<kTile>(dout, kv_tile, C, dp);
      __syncthreads();
      load_tile<kTile>(plane_of<E>(kv, page, 0, head / z.group()) + row, 2 * z.K * C, keys, C,
                       kv_tile);
      __syncthreads();
      products<kTile>(q, kv_tile, C, s);
      __syncthreads();
      score_gradients<kTile>(z, visits, query, head, key, keys, lse_HT, delta_HT, s, dp);
      __syncthreads();
      add_products<kTile, false>(dp, kv_tile, C, dq);
    }
  }
  __syncthreads();
  for (std::int64_t j = threadIdx.x; j < query.rows * C; j += kThreads)
    put(dq_THC + ((query.first + j / C) * z.H + head) * C + j % C, dq[j / C * (C + 1) + j % C]);
}

template <int kTile, class E, class G>
__global__ void __launch_bounds__(kThreads)
    dkv_kernel(Sizes z, const E* q_THC, const E* dout_THC, const float* lse_HT,
               const float* delta_HT, DevicePages kv, DevicePages gradients, DeviceVisits visits,
               std::uint64_t rounding) {
  extern __shared__ float shared[];
  const std::int64_t C = z.C, tile_floats = kTile * (C + 1);
  float *k = shared, *v = k + tile_floats, *x = v + tile_floats, *dk = x + tile_floats,
        *dv = dk + tile_floats;
  float *s = dv + tile_floats, *dp = s + kTile * (kTile + 1);
  const std::int64_t key_tiles = (z.P + kTile - 1) / kTile, kv_head = blockIdx.y;
  const std::int64_t visited = blockIdx.x / key_tiles, page = visits.visited[visited];
  const std::int64_t key = page * z.P + blockIdx.x % key_tiles * kTile;
  const std::int64_t keys =
      min(static_cast<std::int64_t>(kTile), min((page + 1) * z.P, visits.chunk_begin + z.T) - key);
  if (keys <= 0) return;
  const std::int64_t row = key % z.P * 2 * z.K * C, query_tiles = (z.P + kTile - 1) / kTile;
  load_tile<kTile>(plane_of<E>(kv, page, 0, kv_head) + row, 2 * z.K * C, keys, C, k);
  load_tile<kTile>(plane_of<E>(kv, page, 1, kv_head) + row, 2 * z.K * C, keys, C, v);
  for (std::int64_t i = threadIdx.x; i < tile_floats; i += kThreads) dk[i] = dv[i] = 0;
  for (std::int64_t head = kv_head * z.group(); head < (kv_head + 1) * z.group(); ++head) {
    for (std::int64_t i = visits.back_offsets[visited]; i < visits.back_offsets[visited + 1]; ++i) {
      for (std::int64_t tile = 0; tile < query_tiles; ++tile) {
        const QueryTile query = QueryTile::of<kTile>(z, visits.back_queries[i], tile);
        if (query.rows <= 0 || key > visits.chunk_begin + query.first + query.rows - 1 ||
            key + keys <= visits.first_visible[query.first])
          continue;
        const std::int64_t first = (query.first * z.H + head) * C;
        // One buffer serves q and dout in turn: q, then dout, then q again.
        __syncthreads();
        load_tile<kTile>(q_THC + first, z.H * C, query.rows, C, x);
        __syncthreads();
        products<kTile>(x, k, C, s);
        __syncthreads();
        load_tile<kTile>(dout_THC + first, z.H * C, query.rows, C, x);
        __syncthreads();
        products<kTile>(x, v, C, dp);
        __syncthreads();
        score_gradients<kTile>(z, visits, query, head, key, keys, lse_HT, delta_HT, s, dp);
        __syncthreads();
        add_products<kTile, true>(s, x, C, dv);
        __syncthreads();
        load_tile<kTile>(q_THC + first, z.H * C, query.rows, C, x);
        __syncthreads();
        add_products<kTile, true>(dp, x, C, dk);
      }
    }
  }
  __syncthreads();
  G* to_k = plane_of<G>(gradients, page, 0, kv_head) + row;
  G* to_v = plane_of<G>(gradients, page, 1, kv_head) + row;
  for (std::int64_t j = threadIdx.x; j < keys * C; j += kThreads) {
    const std::int64_t at = j / C * 2 * z.K * C + j % C, from = j / C * (C + 1) + j % C;
    const RowRounding own(rounding, key + j / C);
    const auto element = static_cast<unsigned>(kv_head * C + j % C);
    const float dk_sum[1] = {as_float(to_k + at) + dk[from]},
                dv_sum[1] = {as_float(to_v + at) + dv[from]};
    store_gradient<1>(dk_sum, own, element, to_k + at);
    store_gradient<1>(dv_sum, own, static_cast<unsigned>(z.K * C) + element, to_v + at);
  }
}

// Launches a kernel with `floats` floats of shared memory.
template <class Kernel, class... Args>
void launch(Kernel kernel, dim3 grid, std::int64_t floats, cudaStream_t stream, Args... args) {
  const auto bytes = static_cast<int>(floats * 4);
  LS_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<grid, kThreads, static_cast<std::size_t>(bytes), stream>>>(args...);
  LS_CUDA_LAUNCHED();
}

Sizes sizes_of(const ConstView& q_THC, const PagesView& kv, float scale) {
  const Sizes z{.T = q_THC.dim(0),
                .H = q_THC.dim(1),
                .K = kv.kv_heads,
                .C = kv.head_size,
                .P = kv.page_tokens,
                .scale = scale};
  LS_CHECK(z.C <= kMaxHeadSize && z.H <= 65535, "{} heads of {}", z.H, z.C);
  return z;
}

// Calls f(std::integral_constant<int, tile>): large tiles if they fit into shared memory.
template <class F>
void dispatch_tile(std::int64_t head_size, const F& f) {
  if (head_size <= 128)
    f(std::integral_constant<int, 32>{});
  else
    f(std::integral_constant<int, 16>{});
}

}  // namespace

void plain_attention_forward(Stream& stream, const PagedAttentionForward& a) {
  const Sizes z = sizes_of(a.q_THC, a.kv, a.scale);
  longstride::cuda::CudaStream& s = cuda_stream(stream);
  const DeviceVisits visits = upload_visits(s, a.visits, z.T);
  const DevicePages kv = upload_pages(s, a.kv, a.visits);
  dispatch_activation(a.q_THC.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    dispatch_tile(z.C, [&](auto tile) {
      constexpr int kTile = decltype(tile)::value;
      const dim3 grid(grid_size(a.visits.query_pages * ceil_div(z.P, kTile)),
                      static_cast<unsigned>(z.H));
      launch(forward_kernel<kTile, E>, grid, 4 * kTile * (z.C + 1) + kTile * (kTile + 4),
             s.handle(), z, a.q_THC.as<E>(), kv, visits, a.out_THC.as<E>(), a.lse_HT.as<float>());
    });
  });
}

std::int64_t plain_attention_scratch_elements(const PagedAttentionShape& s) {
  return s.tokens * s.query_heads;
}

void plain_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  const Sizes z = sizes_of(a.q_THC, a.kv, a.scale);
  longstride::cuda::CudaStream& s = cuda_stream(stream);
  const DeviceVisits visits = upload_visits(s, a.visits, z.T);
  const DevicePages kv = upload_pages(s, a.kv, a.visits),
                    gradients = upload_pages(s, a.kv_gradient, a.visits);
  float* delta = a.scratch.as<float>();
  const float* lse = a.lse_HT.as<float>();
  dispatch_activation(a.q_THC.dtype(), [&](auto type) {
    using E = typename decltype(type)::type;
    delta_kernel<<<grid_size(ceil_div(z.T * z.H * 32, kThreads)), kThreads, 0, s.handle()>>>(
        z, a.out_THC.as<E>(), a.dout_THC.as<E>(), delta);
    LS_CUDA_LAUNCHED();
    dispatch_tile(z.C, [&](auto tile) {
      constexpr int kTile = decltype(tile)::value;
      const std::int64_t square = kTile * (kTile + 1), rows = kTile * (z.C + 1);
      launch(
          dq_kernel<kTile, E>,
          dim3(grid_size(a.visits.query_pages * ceil_div(z.P, kTile)), static_cast<unsigned>(z.H)),
          4 * rows + 2 * square, s.handle(), z, a.q_THC.as<E>(), a.dout_THC.as<E>(), lse, delta, kv,
          visits, a.dq_THC.as<E>());
      const dim3 grid(grid_size(a.visits.visited_pages * ceil_div(z.P, kTile)),
                      static_cast<unsigned>(z.K));
      dispatch_activation(a.kv_gradient.dtype, [&](auto gradient) {
        using G = typename decltype(gradient)::type;
        launch(dkv_kernel<kTile, E, G>, grid, 5 * rows + 2 * square, s.handle(), z, a.q_THC.as<E>(),
               a.dout_THC.as<E>(), lse, delta, kv, gradients, visits, a.rounding);
      });
    });
  });
}

}  // namespace longstride::ops::cuda
