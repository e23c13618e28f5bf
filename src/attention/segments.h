// Attention over pages that come to the device segment by segment.
#pragma once

#include <span>

#include "pages/page_store.h"

namespace longstride {

// Calls attend(segments) until all of the task's have been given, each time with their pages on the
// device: for all of them at once where pages stay there, else for one after the other.
template <class F>
void for_segments(PageStore& pages, const Task& task, const F& attend) {
  const std::span<const KeySegment> all = *task.segments;
  if (!pages.comes_in_segments()) return attend(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    pages.enter_segment(task, i);
    attend(all.subspan(i, 1));
  }
}

}  // namespace longstride
