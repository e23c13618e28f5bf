// Sets of logical pages. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace longstride {

// A run of logical pages [begin, end).
struct PageRun {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const PageRun&) const = default;
};

// An ascending set of pages, kept as disjoint runs with gaps between them. One run, the common
// case, costs no allocation. Immutable; copies share their runs.
class PageSet {
 public:
  PageSet() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  PageSet(PageRun run) : hull_(run.size() > 0 ? run : PageRun{}) {}
  // `runs` must be ascending and disjoint. Joins adjacent runs and drops empty ones.
  explicit PageSet(std::span<const PageRun> runs);

  std::int64_t size() const { return more_ ? more_->pages : hull_.size(); }
  bool empty() const { return hull_.size() == 0; }
  // From the first page to the end of the last.
  PageRun hull() const { return hull_; }
  std::span<const PageRun> runs() const {
    if (more_) return more_->runs;
    return {&hull_, empty() ? 0u : 1u};
  }

  bool contains(std::int64_t page) const { return overlaps({page, page + 1}); }
  bool overlaps(PageRun run) const {
    if (run.size() <= 0 || run.end <= hull_.begin || run.begin >= hull_.end) return false;
    return !more_ || first_behind(run.begin)->begin < run.end;
  }
  // Calls f(PageRun) for each run of the set's intersection with `within`, in order.
  template <class F>
  void for_runs_in(PageRun within, const F& f) const {
    const std::span<const PageRun> all = runs();
    for (const PageRun* run = first_behind(within.begin);
         run != all.data() + all.size() && run->begin < within.end; ++run)
      f(PageRun{std::max(run->begin, within.begin), std::min(run->end, within.end)});
  }
  PageSet intersection(PageRun run) const;

  bool operator==(const PageSet& other) const { return std::ranges::equal(runs(), other.runs()); }

 private:
  struct Runs {
    std::vector<PageRun> runs;  // at least two
    std::int64_t pages = 0;
  };
  // The first run that ends after `page`.
  const PageRun* first_behind(std::int64_t page) const {
    const std::span<const PageRun> all = runs();
    return std::upper_bound(all.data(), all.data() + all.size(), page,
                            [](std::int64_t p, const PageRun& run) { return p < run.end; });
  }

  PageRun hull_;                      // the run itself if there is only one
  std::shared_ptr<const Runs> more_;  // null unless there are several
};

}  // namespace longstride
