#include "base/error.h"
#include "ops/page_selection.h"
namespace longstride::ops::cuda {
void summarize_pages(Stream&, const SummarizePages&) { throw Error("not yet", ""); }
void page_scores(Stream&, const PageScores&) { throw Error("not yet", ""); }
void choose_pages(Stream&, const ChoosePages&) { throw Error("not yet", ""); }
std::int64_t page_scores_scratch_elements(const PageScoresShape& s) { return s.tokens * s.query_heads; }
}
