#include "schedule/page_set.h"

#include <utility>

#include "base/error.h"

namespace longstride {

PageSet::PageSet(std::span<const PageRun> runs) {
  Runs joined;
  for (const PageRun& run : runs) {
    if (run.size() == 0) continue;
    LS_CHECK(run.size() > 0 && (joined.runs.empty() || joined.runs.back().end <= run.begin),
             "pages {} to {} behind page {}", run.begin, run.end,
             joined.runs.empty() ? 0 : joined.runs.back().end);
    joined.pages += run.size();
    if (!joined.runs.empty() && joined.runs.back().end == run.begin)
      joined.runs.back().end = run.end;
    else
      joined.runs.push_back(run);
  }
  if (joined.runs.empty()) return;
  hull_ = {joined.runs.front().begin, joined.runs.back().end};
  if (joined.runs.size() > 1) more_ = std::make_shared<const Runs>(std::move(joined));
}

PageSet PageSet::intersection(PageRun run) const {
  if (!more_)
    return overlaps(run) ? PageSet({std::max(hull_.begin, run.begin), std::min(hull_.end, run.end)})
                         : PageSet();
  std::vector<PageRun> common;
  for_runs_in(run, [&](PageRun part) { common.push_back(part); });
  return PageSet(common);
}

}  // namespace longstride
