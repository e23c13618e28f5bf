// Page scores on CUDA: the rows of q for the two passes, and the choice of kernels.
#include "ops/cuda/page_scores.h"

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/attention_tiles.cuh"
#include "ops/cuda/scratch_size.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256;

std::int64_t parts_elements(std::int64_t rows) {
  return floats_for(kMaxPageSplits * rows * 2, DType::kF32);
}
std::int64_t sums_elements(std::int64_t rows) {
  return parts_elements(rows) + floats_for(rows * 2, DType::kF32);
}

// sums[i / C][part][i % C]: parts of the sum over the heads of a group, the smallest first.
__global__ void __launch_bounds__(kThreads)
    sum_heads_kernel(const bf16* __restrict__ q_THC, std::int64_t elements, int group, int C,
                     bf16* __restrict__ sums) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t row = i / C, c = i % C;
  float sum[1] = {};
  for (int h = 0; h < group; ++h) {
    float x[1];
    load_floats<1>(q_THC + (row * group + h) * C + c, x);
    sum[0] += x[0];
  }
#pragma unroll
  for (int part = kSumParts - 1; part >= 0; --part) {
    const auto rounded = Packed<bf16, 1>::pack(sum);
    rounded.store(sums + (row * kSumParts + part) * C + c);
    float x[1];
    rounded.unpack(x);
    sum[0] -= x[0];
  }
}

}  // namespace

std::int64_t page_scores_scratch_elements(const PageScoresShape& s) {
  if (s.scoring != Scoring::kOomb) return sums_elements(s.tokens * s.query_heads);
  const std::int64_t rows = s.tokens * s.kv_heads;
  return sums_elements(rows) + floats_for(rows * kSumParts * s.head_size, DType::kBF16);
}

void page_scores(Stream& stream, const PageScores& a) {
  const std::int64_t H = a.q_THC.dim(1), C = a.q_THC.dim(2), K = a.summaries_MKC.dim(1),
                     group = H / K;
  const bool sums = a.scoring == Scoring::kOomb,
             matrix = fits_matrix_page_scores(a.q_THC.dtype(), C, a.means);
  const DType t = a.q_THC.dtype();
  const std::int64_t per_query = sums ? 1 : group, rows = a.seen.queries * per_query;
  LS_CHECK(rows * K <= std::numeric_limits<std::int32_t>::max() &&
               rows * per_query <= std::numeric_limits<std::int32_t>::max() &&
               a.candidates() * a.means <= std::numeric_limits<std::int32_t>::max(),
           "{} queries for {} pages", a.seen.queries, a.candidates());
  LS_CHECK(a.scale > 0, "scale {}", a.scale);  // the largest product must be the largest score
  LS_CHECK(
      aligned({a.scratch.data()}) && (!matrix || aligned({a.q_THC.data(), a.summaries_MKC.data()})),
      "q at {}", a.q_THC.data());
  const cudaStream_t queue = longstride::cuda::cuda_stream(stream).handle();

  PageScoresWork w;
  w.K = static_cast<int>(K);
  w.R = static_cast<int>(rows);
  w.N = static_cast<int>(a.candidates());
  w.C = static_cast<int>(C);
  w.per_query = static_cast<int>(per_query);
  w.reciprocal = 0xffffffffu / static_cast<std::uint32_t>(per_query) + 1;
  w.page_rows = static_cast<int>(a.page_tokens * per_query);
  w.hidden = static_cast<int>(a.hidden_means());
  w.power = weight_power(a.scoring);
  w.scale_log2 = a.scale * kLog2E;
  w.query_stride = H * C;
  w.head_stride = group * C;
  w.scores_stride = a.scores_QN.dim(1);
  w.q = a.q_THC.data();
  w.means = static_cast<const std::byte*>(a.summaries_MKC.data()) +
            a.first_page() * a.means * K * C * size_of(t);
  w.parts = static_cast<float2*>(a.scratch.data());
  w.stats = reinterpret_cast<float2*>(a.scratch.as<float>() + parts_elements(rows * K));
  w.scores_QN = a.scores_QN.as<float>();
  const int means = static_cast<int>(a.means);
  if (!matrix) return plain_page_scores(queue, t, w, static_cast<int>(sums ? group : 1), means);
  if (!sums && fits_warpgroup_page_scores(t, C, a.means))
    return warpgroup_page_scores(queue, w, means);

  if (sums) {
    bf16* const parts =
        reinterpret_cast<bf16*>(a.scratch.as<float>() + sums_elements(a.q_THC.dim(0) * K));
    const std::int64_t elements = a.seen.queries * K * C;
    sum_heads_kernel<<<grid_size(ceil_div(elements, kThreads)), kThreads, 0, queue>>>(
        a.q_THC.as<bf16>(), elements, static_cast<int>(group), static_cast<int>(C), parts);
    LS_CUDA_LAUNCHED();
    w.q = parts;
    w.query_stride = K * kSumParts * C;
    w.head_stride = kSumParts * C;
  }
  matrix_page_sums(queue, w, means, sums);
  matrix_page_weights(queue, w, means, sums);
}

}  // namespace longstride::ops::cuda
