// Paged attention on CUDA: which engine computes what. Dense BF16, where every query attends from
// one common first key to itself, goes to cuDNN segment by segment (the first keys of a document
// that began between two segments go to our kernels). So do sparse lists of equal lengths, over
// copies of the selected pages. Other BF16 (windows, documents within a chunk, other lists, no
// cuDNN) goes to our kernels for the matrix units; F32 and odd head sizes go to plain kernels.
#include "ops/paged_attention.h"

#include <algorithm>

#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "ops/coded_attention.h"
#include "ops/cuda/attention_cudnn.h"
#include "ops/cuda/attention_matrix.h"
#include "ops/cuda/attention_plain.h"
#include "ops/cuda/attention_segments.h"
#include "ops/cuda/attention_sparse.h"

namespace longstride::ops::cuda {
namespace {

// Head sizes that cuDNN's training kernels support.
bool fits_cudnn(DType compute, std::int64_t head_size) {
  return compute == DType::kBF16 && head_size % 8 == 0 && head_size <= 256;
}

// Whether cuDNN may compute attention of this kind.
template <class Args>
bool is_for_cudnn(const Args& a, AttentionKind kind) {
  return a.visits.kind == kind && fits_cudnn(a.q_THC.dtype(), a.kv.head_size);
}

// Our own kernels need all segments in one call.
void refuse_some(std::span<const KeySegment> segments) {
  if (!joined(segments).is_all())
    throw Error(
        "pages of a dense layer can be fetched to the GPU in segments only if cuDNN computes "
        "its attention, and cuDNN is missing or does not support this shape",
        "install cuDNN 9, or raise memory.gpu until a layer's pages fit");
}

void wide_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  if (is_for_cudnn(a, AttentionKind::kDense) && segmented_attention_backward(stream, a)) return;
  refuse_some(a.segments);
  if (fits_matrix_attention(a.q_THC.dtype(), a.kv.head_size))
    return matrix_attention_backward(stream, a);
  plain_attention_backward(stream, a);
}

}  // namespace

KeyCut paged_attention_cut(const PagedAttentionPass& pass) {
  return fits_cudnn(pass.shape.compute, pass.shape.head_size) &&
                 (pass.elsewhere || cudnn_version() != "none")
             ? segment_cut(pass.backward, pass.exact)
             : KeyCut{};
}

std::int64_t paged_attention_scratch_elements(const PagedAttentionShape& s) {
  const std::int64_t ours = fits_matrix_attention(s.compute, s.head_size)
                                ? matrix_attention_scratch_elements(s)
                                : plain_attention_scratch_elements(s);
  return fits_cudnn(s.compute, s.head_size)
             ? std::max({ours, segmented_attention_scratch_elements(s),
                         sparse_attention_scratch_elements(s)})
             : ours;
}

// Seen with cuDNN 9.19: its backward pass that repeats holds dq in F32 for every 256 keys.
std::int64_t paged_attention_reserved_bytes(const PagedAttentionReserve& a) {
  constexpr std::int64_t kKeys = 256;
  const PagedAttentionShape& s = a.shape;
  if (!a.exact || s.compute != DType::kBF16) return 0;
  const std::int64_t past = std::max<std::int64_t>(a.keys - s.tokens, 0),
                     keys = std::max(s.tokens, std::min(past, segment_cut(true, true).tokens));
  return 4 * s.tokens * s.query_heads * s.head_size * ((keys + kKeys - 1) / kKeys);
}

void paged_attention_reserve(Stream& stream, const PagedAttentionReserve& a) {
  if (!fits_cudnn(a.shape.compute, a.shape.head_size)) return;
  reserve_segmented_attention(stream, a);
  reserve_sparse_attention(stream, a);
}

// Sparse attention reads coded pages where it copies them; the others get wide copies of them.
void paged_attention_forward(Stream& stream, const PagedAttentionForward& a) {
  if (is_for_cudnn(a, AttentionKind::kSparse) && sparse_attention_forward(stream, a)) return;
  widen_keys(stream, a);
  if (is_for_cudnn(a, AttentionKind::kDense) && segmented_attention_forward(stream, a)) return;
  refuse_some(a.segments);
  if (fits_matrix_attention(a.q_THC.dtype(), a.kv.head_size))
    return matrix_attention_forward(stream, a);
  plain_attention_forward(stream, a);
}

void paged_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  if (is_for_cudnn(a, AttentionKind::kSparse) && sparse_attention_backward(stream, a)) return;
  widen_keys(stream, a);
  if (std::byte* const sums = sums_of_coded(a))
    LS_CUDA(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(bytes_of_sums(a)),
                            longstride::cuda::cuda_stream(stream).handle()));
  wide_attention_backward(stream, a);
  keep_sums(stream, a);
}

}  // namespace longstride::ops::cuda
