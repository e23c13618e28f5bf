// Selection of pages for sparse attention: summaries of pages, scores of a chunk's query pages for
// earlier pages, and the choice of the best. No gradient flows through any of it.
//   T queries   H query heads   K KV heads   C head size   P tokens of a page
//   S vectors of a page's summary (`means`, although outliers are keys)
//   N candidates: the earlier pages that the chunk's first queries may attend to
//   Q query pages   B budget   U pages in the union of a chunk's lists
#pragma once

#include "ops/dispatch.h"
#include "tensor/pages_view.h"
#include "tensor/selection.h"
#include "tensor/view.h"

namespace longstride::ops {

// Summaries of the rotated keys of full pages. If a document begins within a page, only the last
// document's keys count.
// kMeans: means of P / S consecutive keys each; a mean of no keys is 0.
// kOutliers, per KV head: the S - 1 keys that are farthest from the mean of all, in their order (of
// equally far ones the earlier), then the mean of the others. One key at least is not an outlier;
// with fewer keys than vectors that mean stands several times.
struct SummarizePages {
  PagesView kv;
  std::int64_t first_page = 0, pages = 0;
  std::int64_t means = 1;  // S, a divisor of P
  Summary summary = Summary::kMeans;
  const std::int32_t* first_row = nullptr;  // [pages], on the host: a page's first key that counts
  View summaries_MKC;  // =, M = pages * S: rows of these pages, in the type of the pages
};
LS_OP(summarize_pages, SummarizePages)

// The queries [0, seen.queries) of the chunk may attend to keys from seen.first on; candidates are
// the pages from that key's to the chunk. Means of keys before seen.first do not count.
struct PageScores {
  ConstView q_THC;          // rotated
  ConstView summaries_MKC;  // of all pages before the chunk, from page 0 on
  DenseKeys seen;
  std::int64_t chunk_begin = 0, page_tokens = 0, means = 1;
  Summary summary = Summary::kMeans;
  Scoring scoring = Scoring::kMass;
  float scale = 1.0f;
  View scores_QN;  // =, F32: rows of query pages that begin before seen.queries, first N columns
  View scratch;    // F32, page_scores_scratch_elements

  std::int64_t first_page() const { return seen.first / page_tokens; }
  std::int64_t candidates() const { return chunk_begin / page_tokens - first_page(); }
  // The first means of the first candidate that are of other documents' keys.
  std::int64_t hidden_means() const {
    return summary == Summary::kMeans ? seen.first % page_tokens / (page_tokens / means) : 0;
  }
  std::int64_t query_pages() const { return (seen.queries + page_tokens - 1) / page_tokens; }
};
LS_OP(page_scores, PageScores)

struct PageScoresShape {
  std::int64_t tokens = 0, query_heads = 0, kv_heads = 0, head_size = 0, page_tokens = 0;
  std::int64_t means = 1;
  Scoring scoring = Scoring::kMass;
};
LS_SIZE(page_scores_scratch_elements, PageScoresShape)

// First the chunk's union: the forced pages, and of the others those with the largest sums over all
// query pages, union_pages in all. Then each query page's list: the forced pages, and the best of
// the others in the union, `budget` in all. Of equal scores the lower page wins. Scores are not
// negative.
struct ChoosePages {
  ConstView scores_QN;
  std::int64_t query_pages = 0;                 // rows that count; the other lists are empty
  std::int64_t first_page = 0, candidates = 0;  // column i is page first_page + i
  std::int64_t budget = 0, sinks = 0, recent = 0, union_pages = 0;
  View sums_N;    // F32 scratch, at least one
  View union_U;   // =, I32: pages, ascending, then -1; U >= min(union_pages, candidates), U >= 1
  View lists_QB;  // =, I32: pages, ascending, then -1
};
LS_OP(choose_pages, ChoosePages)

}  // namespace longstride::ops
