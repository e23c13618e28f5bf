// Attention over coded pages by wide copies of them: what every backend can do before and after its
// kernels for wide pages.
#pragma once

#include "ops/page_codes.h"
#include "ops/paged_attention.h"

namespace longstride::ops {

// Coded keys and values are widened into the copies.
template <class Args>
void widen_keys(Stream& stream, const Args& a) {
  if (a.codes.kv.base == nullptr || a.codes.kv_pages.empty()) return;
  widen_pages(stream, {.codes = a.codes.kv,
                       .wide = a.kv,
                       .pages = a.codes.kv_pages,
                       .end_token = a.visits.chunk_begin});
}

// The sums of gradients of coded pages, which must be zero before attention adds to them; null: no
// gradients are coded.
inline std::byte* sums_of_coded(const PagedAttentionBackward& a) {
  if (a.codes.gradients.base == nullptr || a.codes.gradient_pages.empty()) return nullptr;
  return a.kv_gradient.plane(a.codes.gradient_pages.front(), 0);
}
inline std::int64_t bytes_of_sums(const PagedAttentionBackward& a) {
  return std::ssize(a.codes.gradient_pages) * a.kv_gradient.page_bytes;
}

// Adds the sums to the coded pages.
inline void keep_sums(Stream& stream, const PagedAttentionBackward& a) {
  if (sums_of_coded(a) == nullptr) return;
  add_to_coded_pages(stream, {.sums = a.kv_gradient,
                              .codes = a.codes.gradients,
                              .pages = a.codes.gradient_pages,
                              .end_token = a.visits.chunk_begin,
                              .rounding = a.rounding});
}

}  // namespace longstride::ops
