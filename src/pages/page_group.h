// Page groups, the unit of offloading: a fixed number of consecutive logical pages of one layer,
// independent of chunks. The last group of a layer may be shorter.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedule/page_set.h"

namespace longstride {

struct PageGroup {
  std::int64_t layer = 0, index = 0;
  bool operator==(const PageGroup&) const = default;
};

// Calls f(index), ascending, for the groups of `per` pages each that contain pages of the set.
template <class F>
void for_groups(const PageSet& pages, std::int64_t per, const F& f) {
  std::int64_t next = 0;  // runs may share a group
  for (const PageRun& run : pages.runs()) {
    const std::int64_t last = (run.end - 1) / per;
    for (std::int64_t i = std::max(next, run.begin / per); i <= last; ++i) f(i);
    next = last + 1;
  }
}

}  // namespace longstride
