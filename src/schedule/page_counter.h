// How many pages exist, task by task: a chunk's from its forward pass to the end of its backward
// pass, or to their release; a gradient page from its first access on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/step_schedule.h"

namespace longstride {

struct PageCounts {
  std::int64_t kv = 0, gradients = 0;
};

// Gets the tasks of a step in order.
class PageCounter {
 public:
  // Of sequences of `pages` pages.
  PageCounter(std::int64_t layers, std::int64_t pages)
      : first_accessed_(static_cast<std::size_t>(layers), pages) {}

  // Of the task's layer: created at its beginning.
  PageCounts created(const Task& task) {
    PageCounts made;
    if (task.append) made.kv = task.appended.size();
    if (task.kind != TaskKind::kLayerBackward) return made;
    // Backward passes run from the last chunk to the first: all pages from the first accessed one
    // to this chunk's end already have gradient pages.
    std::int64_t& first = first_accessed_[static_cast<std::size_t>(task.layer)];
    first = std::min(first, task.freed.end);
    if (const std::int64_t begin = task.visited.hull().begin; begin < first) {
      made.gradients = first - begin;
      first = begin;
    }
    return made;
  }
  // And freed at its end.
  static PageCounts freed(const Task& task) {
    return {task.freed.size(), task.kind == TaskKind::kLayerBackward ? task.freed.size() : 0};
  }

 private:
  std::vector<std::int64_t> first_accessed_;  // by layer
};

}  // namespace longstride
