#include "pages/hot_pages.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

std::int64_t layers_with_hot_pages(const KvShape& shape, const StepSchedule& schedule) {
  std::vector<bool> has(static_cast<std::size_t>(shape.layers));
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks)
      if (task.kind == TaskKind::kLayerBackward && task.sparse &&
          is_page_code(shape.types(task.layer).gradients))
        has[static_cast<std::size_t>(task.layer)] = true;
  return std::ranges::count(has, true);
}

HotPages::HotPages(std::int64_t layers, std::int64_t logical_pages)
    : visits_(static_cast<std::size_t>(layers)),
      hot_(static_cast<std::size_t>(layers)),
      chosen_(static_cast<std::size_t>(layers)),
      logical_pages_(logical_pages) {
  order_.reserve(static_cast<std::size_t>(logical_pages));
}

void HotPages::begin(std::int64_t most) {
  most_ = most;
  for (std::vector<std::int32_t>& visits : visits_) std::ranges::fill(visits, 0);
  chosen_.assign(chosen_.size(), false);
}

void HotPages::count(std::int64_t layer, const PageSet& pages, std::int64_t own) {
  LS_CHECK(!chosen_.at(static_cast<std::size_t>(layer)), "layer {} has its hot pages", layer);
  if (most_ == 0) return;
  std::vector<std::int32_t>& visits = visits_[static_cast<std::size_t>(layer)];
  if (visits.empty()) visits.resize(static_cast<std::size_t>(logical_pages_));
  for (const PageRun& run : pages.runs())
    for (std::int64_t page = run.begin; page < std::min(run.end, own); ++page)
      ++visits[static_cast<std::size_t>(page)];
}

std::span<const std::int32_t> HotPages::of(std::int64_t layer) {
  const auto l = static_cast<std::size_t>(layer);
  std::vector<std::int32_t>& hot = hot_.at(l);
  if (chosen_[l]) return hot;
  chosen_[l] = true;
  const std::vector<std::int32_t>& visits = visits_[l];
  order_.clear();
  for (std::size_t page = 0; page < visits.size(); ++page)
    if (visits[page] > 1) order_.push_back(static_cast<std::int32_t>(page));
  const std::int64_t count = std::min(most_, std::ssize(order_));
  std::ranges::partial_sort(order_, order_.begin() + count, [&](std::int32_t a, std::int32_t b) {
    const std::int32_t x = visits[static_cast<std::size_t>(a)],
                       y = visits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  hot.assign(order_.begin(), order_.begin() + count);
  std::ranges::sort(hot);
  return hot;
}

}  // namespace longstride
