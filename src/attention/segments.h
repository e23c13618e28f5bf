// Attention over pages that are fetched to the device segment by segment.
#pragma once

#include <span>

#include "pages/page_store.h"

namespace longstride {

// Calls attend(segments) with the segments' pages on the device: once with all of the task's
// segments if pages stay there, otherwise once per segment, in order.
template <class F>
void for_segments(PageStore& pages, const Task& task, const F& attend) {
  const std::span<const KeySegment> all = *task.segments;
  if (!pages.comes_in_segments(task)) return attend(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    pages.enter_segment(task, i);
    attend(all.subspan(i, 1));
  }
}

}  // namespace longstride
