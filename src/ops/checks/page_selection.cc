#include "ops/page_selection.h"

#include <algorithm>

#include "base/error.h"

namespace longstride::ops {

void check(const Stream&, const SummarizePages& a) {
  LS_CHECK(a.means > 0 && a.kv.page_tokens % a.means == 0, "{} means of a page of {}", a.means,
           a.kv.page_tokens);
  LS_CHECK(a.summary == Summary::kMeans || a.means > 1, "outliers in {} vectors", a.means);
  LS_CHECK(a.summaries_MKC.shape() == Shape({a.pages * a.means, a.kv.kv_heads, a.kv.head_size}) &&
               a.summaries_MKC.dtype() == a.kv.dtype,
           "summaries {} of {} pages", a.summaries_MKC.shape().to_string(), a.pages);
}

void check(const Stream& stream, const PageScores& a) {
  const Shape &q = a.q_THC.shape(), &m = a.summaries_MKC.shape();
  LS_CHECK(q.rank() == 3 && m.rank() == 3 && q[2] == m[2] && q[1] % m[1] == 0 &&
               a.q_THC.dtype() == a.summaries_MKC.dtype(),
           "q {}, summaries {}", q.to_string(), m.to_string());
  LS_CHECK(a.chunk_begin % a.page_tokens == 0 && a.seen.first < a.chunk_begin &&
               a.seen.queries > 0 && a.seen.queries <= q[0],
           "{} of {} queries at {} see keys from {}", a.seen.queries, q[0], a.chunk_begin,
           a.seen.first);
  LS_CHECK(m[0] >= a.chunk_begin / a.page_tokens * a.means, "{} means for {} pages", m[0],
           a.chunk_begin / a.page_tokens);
  LS_CHECK(a.scores_QN.dim(0) >= a.query_pages() && a.scores_QN.dim(1) >= a.candidates() &&
               a.scores_QN.dtype() == DType::kF32,
           "scores {} of {} pages", a.scores_QN.shape().to_string(), a.candidates());
  LS_CHECK(
      a.scratch.elements() >= page_scores_scratch_elements(stream, {.tokens = q[0],
                                                                    .query_heads = q[1],
                                                                    .kv_heads = m[1],
                                                                    .head_size = q[2],
                                                                    .page_tokens = a.page_tokens,
                                                                    .means = a.means,
                                                                    .scoring = a.scoring}),
      "scratch {}", a.scratch.elements());
}

void check(const Stream&, const ChoosePages& a) {
  LS_CHECK(
      a.sinks >= 0 && a.recent >= 0 && a.budget >= a.sinks + a.recent && a.union_pages >= a.budget,
      "budget {}, {} sinks, {} recent, union {}", a.budget, a.sinks, a.recent, a.union_pages);
  LS_CHECK(a.scores_QN.dim(0) >= a.query_pages && a.scores_QN.dim(1) >= a.candidates &&
               a.lists_QB.dim(0) >= a.query_pages && a.lists_QB.dim(1) >= a.budget,
           "scores {} of {} candidates, lists {}", a.scores_QN.shape().to_string(), a.candidates,
           a.lists_QB.shape().to_string());
  LS_CHECK(a.sums_N.elements() >= a.candidates &&
               a.union_U.elements() >= std::min(a.union_pages, a.candidates),
           "room for {} sums and a union of {}", a.sums_N.elements(), a.union_U.elements());
}

}  // namespace longstride::ops
