// Attention backward on the matrix units: statistics of the queries, then dq, then dk and dv. The
// weights are computed twice, once by the blocks that own queries and once by those that own keys:
// sums across blocks would need atomics, and their bits would not repeat.
#include <cmath>

#include "ops/cuda/attention_matrix.h"
#include "ops/cuda/attention_matrix_backward.cuh"

namespace longstride::ops::cuda {
namespace {

constexpr int kThreads = 256, kLanes = 16;  // lanes per query

__global__ void __launch_bounds__(kThreads)
    statistics_kernel(AttentionSizes z, const bf16* out_THC, const bf16* dout_THC,
                      const float* lse_HT, QueryStatistics* statistics_HT) {
  const std::int64_t row =
      (blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const bool present = row < z.T * z.H;
  float delta = 0.0f;
  for (int c = lane * 8; present && c < z.C; c += kLanes * 8) {
    float out[8], dout[8];
    load_floats<8>(out_THC + row * z.C + c, out);
    load_floats<8>(dout_THC + row * z.C + c, dout);
#pragma unroll
    for (int i = 0; i < 8; ++i) delta = fmaf(out[i], dout[i], delta);
  }
  delta = lanes_sum<kLanes>(delta);
  if (!present || lane != 0) return;
  const std::int64_t at = row % z.H * z.T + row / z.H;
  const float lse = lse_HT[at];
  statistics_HT[at] = {lse == -INFINITY ? INFINITY : lse * kLog2E, delta};
}

}  // namespace

std::int64_t matrix_attention_scratch_elements(const PagedAttentionShape& s) {
  return s.tokens * s.query_heads * static_cast<std::int64_t>(sizeof(QueryStatistics) / 4);
}

void matrix_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  const AttentionSizes z = attention_sizes(a.q_THC, a.kv, a.scale);
  LS_CHECK(aligned({a.out_THC.data(), a.dout_THC.data(), a.dq_THC.data(), a.scratch.data(),
                    a.kv_gradient.base}) &&
               a.kv_gradient.page_bytes % 16 == 0,
           "gradient pages of {} bytes", a.kv_gradient.page_bytes);
  longstride::cuda::CudaStream& s = longstride::cuda::cuda_stream(stream);
  auto* statistics = reinterpret_cast<QueryStatistics*>(a.scratch.as<float>());
  statistics_kernel<<<grid_size(ceil_div(z.T * z.H * kLanes, kThreads)), kThreads, 0, s.handle()>>>(
      z, a.out_THC.as<bf16>(), a.dout_THC.as<bf16>(), a.lse_HT.as<float>(), statistics);
  LS_CUDA_LAUNCHED();
  const MatrixBackward args{z,
                            a.q_THC.as<bf16>(),
                            a.dout_THC.as<bf16>(),
                            statistics,
                            upload_pages(s, a.kv, a.visits),
                            upload_visits(s, a.visits, z.T)};
  launch_matrix_dq(s.handle(), args, a.dq_THC.as<bf16>());
  launch_matrix_dkv(s.handle(), args, upload_pages(s, a.kv_gradient, a.visits), a.kv_gradient.dtype,
                    a.rounding);
}

}  // namespace longstride::ops::cuda
