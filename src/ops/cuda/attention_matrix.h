// Paged attention on the matrix units: BF16 inputs, products accumulated in F32, weights rounded to
// BF16 before they multiply values. Any page size and any visit lists. No sum crosses blocks, and
// the order of additions is that of the lists, so the bits repeat.
#pragma once

#include "ops/paged_attention.h"

namespace longstride::ops::cuda {

bool fits_matrix_attention(DType compute, std::int64_t head_size);

// The scratch of the backward pass; the forward pass needs none.
std::int64_t matrix_attention_scratch_elements(const PagedAttentionShape& shape);

void matrix_attention_forward(Stream& stream, const PagedAttentionForward& args);
void matrix_attention_backward(Stream& stream, const PagedAttentionBackward& args);

}  // namespace longstride::ops::cuda
