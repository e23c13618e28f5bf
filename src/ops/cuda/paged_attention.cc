// Paged attention on CUDA: which engine computes what. BF16 over one range of keys goes to cuDNN in
// segments; everything else (F32, documents that begin in a chunk, sparse lists, shapes that cuDNN
// does not take) to our own kernels.
#include "ops/paged_attention.h"

#include <algorithm>

#include "ops/cuda/attention_plain.h"
#include "ops/cuda/attention_segments.h"

namespace longstride::ops::cuda {
namespace {

// Head sizes that cuDNN's kernels for training on this path take.
bool fits_cudnn(DType compute, std::int64_t head_size) {
  return compute == DType::kBF16 && head_size % 8 == 0 && head_size <= 256;
}

}  // namespace

std::int64_t paged_attention_scratch_elements(const PagedAttentionShape& s) {
  const std::int64_t plain = s.tokens * s.query_heads;
  return fits_cudnn(s.compute, s.head_size)
             ? std::max(plain, segmented_attention_scratch_elements(s))
             : plain;
}

void paged_attention_forward(Stream& stream, const PagedAttentionForward& a) {
  if (fits_cudnn(a.q_THC.dtype(), a.kv.head_size))
    if (const auto range = key_range_of(a.visits, a.q_THC.dim(0), a.kv.page_tokens);
        range && segmented_attention_forward(stream, a, *range))
      return;
  plain_attention_forward(stream, a);
}

void paged_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  if (fits_cudnn(a.q_THC.dtype(), a.kv.head_size))
    if (const auto range = key_range_of(a.visits, a.q_THC.dim(0), a.kv.page_tokens);
        range && segmented_attention_backward(stream, a, *range))
      return;
  plain_attention_backward(stream, a);
}

}  // namespace longstride::ops::cuda
