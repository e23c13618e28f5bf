// The two halves of the backward pass on the matrix units, dq and dkv, each in its own file.
#pragma once

#include "ops/cuda/attention_tiles.cuh"

namespace longstride::ops::cuda {

// Per query: the base-2 logarithm of the sum of its weights, or +infinity if it saw no key, so that
// its weights become 0; and out . dout.
struct alignas(8) QueryStatistics {
  float lse_log2, delta;
};

struct MatrixBackward {
  AttentionSizes sizes;
  const bf16 *q_THC, *dout_THC;
  const QueryStatistics* statistics_HT;
  DevicePages kv;
  DeviceVisits visits;
};

void launch_matrix_dq(cudaStream_t stream, const MatrixBackward& args, bf16* dq_THC);
// Gradient pages are F32, or BF16 and rounded with the key `rounding`.
void launch_matrix_dkv(cudaStream_t stream, const MatrixBackward& args,
                       const DevicePages& gradients, DType gradient_type, std::uint64_t rounding);

}  // namespace longstride::ops::cuda
