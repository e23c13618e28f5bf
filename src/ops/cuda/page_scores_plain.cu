// Page scores for any sizes, in F32 or BF16: a block per row, then a block per (query page, page).
// For tests and unusual models.
#include <cmath>

#include "device/cuda/check.h"
#include "ops/cuda/page_scores_tiles.cuh"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 128;

template <class E>
__device__ __forceinline__ float value(const E* at) {
  float x[1];
  load_floats<1>(at, x);
  return x[0];
}

// A row of q: `heads` neighbouring heads, summed.
template <class E>
struct Row {
  const E* q;
  int heads, C;
  __device__ __forceinline__ Row(const PageScoresWork& w, int heads_of_row, int kv_head, int r)
      : q(static_cast<const E*>(w.q) + r / w.per_query * w.query_stride + kv_head * w.head_stride +
          r % w.per_query * w.C),
        heads(heads_of_row),
        C(w.C) {}
  __device__ __forceinline__ float operator[](int c) const {
    float sum = value(q + c);
    for (int h = 1; h < heads; ++h) sum += value(q + std::int64_t{h} * C + c);
    return sum;
  }
};

// The best of a page's means.
template <class E, class Query>
__device__ __forceinline__ float page_score(const PageScoresWork& w, int means, const Query& q,
                                            int kv_head, int page) {
  float best = -INFINITY;
  for (int s = page == 0 ? w.hidden : 0; s < means; ++s) {
    const E* mean =
        static_cast<const E*>(w.means) + ((std::int64_t{page} * means + s) * w.K + kv_head) * w.C;
    float sum = 0.0f;
    for (int c = 0; c < w.C; ++c) sum = fmaf(q[c], value(mean + c), sum);
    best = fmaxf(best, sum);
  }
  return best * w.scale_log2;
}

template <class E>
__global__ void __launch_bounds__(kThreads)
    plain_sums_kernel(const __grid_constant__ PageScoresWork w, int heads, int means) {
  extern __shared__ float q_C[];
  __shared__ float top[1][kMaxWarps], total[1][kMaxWarps];
  const int kv_head = static_cast<int>(blockIdx.x / w.R), r = static_cast<int>(blockIdx.x % w.R);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const Row<E> row(w, heads, kv_head, r);
  for (int c = thread; c < w.C; c += kThreads) q_C[c] = row[c];
  __syncthreads();
  float reference = -INFINITY, sum = 0.0f;
  for (int page = thread; page < w.N; page += kThreads) {
    const float score = page_score<E>(w, means, q_C, kv_head, page);
    const float now = fmaxf(reference, score);
    sum = sum * exp2f(reference - now) + exp2f(score - now);
    reference = now;
  }
  float largest = reference;
  for (int offset = 16; offset > 0; offset /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  if (lane == 0) top[0][thread / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; ++warp) largest = fmaxf(largest, top[0][warp]);
  // A thread without pages has a reference of -infinity and adds 0.
  float sums[1] = {sum * exp2f(reference - largest)};
  block_sum(sums, total);
  if (thread == 0) w.stats[blockIdx.x] = weight_stats(largest, sums[0], w.power);
}

template <class E>
__global__ void __launch_bounds__(kThreads)
    plain_weights_kernel(const __grid_constant__ PageScoresWork w, int heads, int means) {
  __shared__ float total[1][kMaxWarps];
  const int query_page = static_cast<int>(blockIdx.x / w.N),
            page = static_cast<int>(blockIdx.x % w.N);
  const int first_row = query_page * w.page_rows, rows = min(w.page_rows, w.R - first_row);
  float sum[1] = {};
  for (int kv_head = 0; kv_head < w.K; ++kv_head)
    for (int i = static_cast<int>(threadIdx.x); i < rows; i += kThreads) {
      const int r = first_row + i;
      const float2 stats = w.stats[std::int64_t{kv_head} * w.R + r];
      const float score = page_score<E>(w, means, Row<E>(w, heads, kv_head, r), kv_head, page);
      sum[0] += exp2f(score * static_cast<float>(w.power) - stats.x) * stats.y;
    }
  block_sum(sum, total);
  if (threadIdx.x == 0) w.scores_QN[query_page * w.scores_stride + page] = sum[0];
}

}  // namespace

void plain_page_scores(cudaStream_t stream, DType t, const PageScoresWork& w, int heads,
                       int means) {
  LS_CHECK(w.C <= 8192, "heads of {}", w.C);
  // Whole vectors: the compiler reads the last elements of a row as one vector, past the row's end.
  const auto shared_bytes = static_cast<std::size_t>(ceil_div(w.C, 4)) * 16;
  dispatch_activation(t, [&](auto type) {
    using E = typename decltype(type)::type;
    plain_sums_kernel<E>
        <<<grid_size(std::int64_t{w.K} * w.R), kThreads, shared_bytes, stream>>>(w, heads, means);
    LS_CUDA_LAUNCHED();
    plain_weights_kernel<E>
        <<<grid_size(ceil_div(w.R, w.page_rows) * w.N), kThreads, 0, stream>>>(w, heads, means);
    LS_CUDA_LAUNCHED();
  });
}

}  // namespace longstride::ops::cuda
