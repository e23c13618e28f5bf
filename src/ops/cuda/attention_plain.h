// Paged attention by plain kernels without matrix units: any head size up to 256, any page size,
// F32 or BF16 inputs, all arithmetic in F32. The verification path.
#pragma once

#include "ops/paged_attention.h"

namespace longstride::ops::cuda {

std::int64_t plain_attention_scratch_elements(const PagedAttentionShape& shape);
void plain_attention_forward(Stream& stream, const PagedAttentionForward& args);
void plain_attention_backward(Stream& stream, const PagedAttentionBackward& args);

}  // namespace longstride::ops::cuda
