// Attention over selected pages by cuDNN: the chunk's own pages as a causal square, and the pages
// before it as a batch of one problem per query page, over copies of its selected pages. Results
// are merged by their log-sum-exps.
//
// In a batch, the heads of a group are rows over the same keys rather than cuDNN's native groups,
// which are half as fast in the backward pass. Ranks of the lists are copied kRanks at a time.
#pragma once

#include "ops/paged_attention.h"

namespace longstride::ops::cuda {

inline constexpr std::int64_t kRanks = 64;

// For chunks of shape.tokens or fewer whose lists are no longer than the shape says.
std::int64_t sparse_attention_scratch_elements(const PagedAttentionShape& shape);
// Makes cuDNN's plans for full chunks with the longest lists, and with them the shared workspace.
void reserve_sparse_attention(Stream& stream, const PagedAttentionReserve& args);
// False, with nothing done, unless the chunk has whole pages, all query pages have equally many
// selected pages (or none), every query sees all of these and the chunk's keys up to itself, and
// cuDNN supports the shapes.
bool sparse_attention_forward(Stream& stream, const PagedAttentionForward& args);
bool sparse_attention_backward(Stream& stream, const PagedAttentionBackward& args);

}  // namespace longstride::ops::cuda
