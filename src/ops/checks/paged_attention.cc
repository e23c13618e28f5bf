#include "ops/paged_attention.h"

#include "base/error.h"
#include "tensor/page_codes.h"
#include "tensor/selected_pages.h"

namespace longstride::ops {
namespace {

// Whether `pages` have space for as many tokens as those of the keys and values.
bool hold_tokens_of(const PagesView& kv, const PagesView& pages) {
  return pages.page_bytes >= kv.page_tokens * kv.token_stride() * size_of(pages.dtype);
}

void check_queries(const ConstView& q_THC, const PagesView& kv, const VisitsView& visits,
                   std::span<const KeySegment> segments) {
  const Shape& q = q_THC.shape();
  LS_CHECK(q.rank() == 3 && q[2] == kv.head_size && kv.kv_heads > 0 && q[1] % kv.kv_heads == 0,
           "q {} over {} KV heads of {}", q.to_string(), kv.kv_heads, kv.head_size);
  LS_CHECK(kv.dtype == q_THC.dtype(), "pages of {}, q of {}", name_of(kv.dtype),
           name_of(q_THC.dtype()));
  LS_CHECK(kv.page_tokens > 0 && hold_tokens_of(kv, kv), "page of {} bytes", kv.page_bytes);
  LS_CHECK(visits.query_pages == (q[0] + kv.page_tokens - 1) / kv.page_tokens,
           "{} query pages for {} tokens", visits.query_pages, q[0]);
  check_segments(segments, chunk_keys(visits, q[0], kv.page_tokens));
}

void check_coded(const PagesView& coded, const PagesView& wide, std::span<const std::int32_t> pages,
                 const VisitsView& visits) {
  if (coded.base == nullptr) return;
  const std::int64_t bytes =
      page_bytes_of(coded.dtype, coded.page_tokens, coded.kv_heads, coded.head_size, coded.centred);
  LS_CHECK(is_page_code(coded.dtype) && coded.page_tokens == wide.page_tokens &&
               coded.kv_heads == wide.kv_heads && coded.head_size == wide.head_size &&
               coded.page_bytes >= bytes,
           "coded pages of {}, {} bytes", name_of(coded.dtype), coded.page_bytes);
  const std::int64_t own = visits.chunk_begin / wide.page_tokens;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::int32_t page = pages[i];
    LS_CHECK(page < own && (i == 0 || (page > pages[i - 1] &&
                                       wide.slots[page] == wide.slots[pages[i - 1]] + 1)),
             "coded page {} of slot {} before page {}", page, wide.slots[page], own);
  }
}

void check_scratch(const Stream& stream, const ConstView& q_THC, const PagesView& kv,
                   const VisitsView& visits, const ConstView& scratch) {
  const SelectedCount selected = visits.kind == AttentionKind::kSparse
                                     ? count_selected(visits, kv.page_tokens)
                                     : SelectedCount{};
  const std::int64_t needed =
      paged_attention_scratch_elements(stream, {.tokens = q_THC.dim(0),
                                                .query_heads = q_THC.dim(1),
                                                .kv_heads = kv.kv_heads,
                                                .head_size = kv.head_size,
                                                .page_tokens = kv.page_tokens,
                                                .compute = q_THC.dtype(),
                                                .selected_pages = selected.most,
                                                .union_pages = selected.distinct});
  LS_CHECK(scratch.elements() >= needed, "scratch {} of {}", scratch.elements(), needed);
}

}  // namespace

void check(const Stream& stream, const PagedAttentionForward& a) {
  check_queries(a.q_THC, a.kv, a.visits, a.segments);
  const Shape& q = a.q_THC.shape();
  LS_CHECK(a.out_THC.shape() == q, "out {} q {}", a.out_THC.shape().to_string(), q.to_string());
  LS_CHECK(a.lse_HT.shape() == Shape({q[1], q[0]}), "lse {}", a.lse_HT.shape().to_string());
  check_coded(a.codes.kv, a.kv, a.codes.kv_pages, a.visits);
  check_scratch(stream, a.q_THC, a.kv, a.visits, a.scratch);
}

void check(const Stream& stream, const PagedAttentionBackward& a) {
  check_queries(a.q_THC, a.kv, a.visits, a.segments);
  const Shape& q = a.q_THC.shape();
  LS_CHECK(a.dq_THC.shape() == q && a.dout_THC.shape() == q && a.out_THC.shape() == q, "q {}",
           q.to_string());
  const DType stored = a.kv_gradient.dtype;
  LS_CHECK((stored == DType::kF32 || stored == DType::kBF16) && hold_tokens_of(a.kv, a.kv_gradient),
           "gradient pages of {} bytes, of {}", a.kv_gradient.page_bytes, name_of(stored));
  LS_CHECK(a.codes.gradients.base == nullptr || stored == DType::kF32, "sums of {}",
           name_of(stored));
  check_coded(a.codes.kv, a.kv, a.codes.kv_pages, a.visits);
  check_coded(a.codes.gradients, a.kv_gradient, a.codes.gradient_pages, a.visits);
  check_scratch(stream, a.q_THC, a.kv, a.visits, a.scratch);
}

// Only sizes: nothing to be inconsistent.
void check(const Stream&, const PagedAttentionReserve&) {}

}  // namespace longstride::ops
