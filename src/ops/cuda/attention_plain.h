// Paged attention by plain kernels without matrix units: any head size up to 256, any page size,
// F32 or BF16 inputs, all arithmetic in F32. The verification path.
#pragma once

#include "ops/paged_attention.h"

namespace longstride::ops::cuda {

void plain_attention_forward(Stream& stream, const PagedAttentionForward& args);
// The first tokens * query_heads elements of scratch are used.
void plain_attention_backward(Stream& stream, const PagedAttentionBackward& args);

}  // namespace longstride::ops::cuda
