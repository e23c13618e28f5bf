#include "pages/page_budget.h"

#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"

namespace longstride {
namespace {

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Pages of one layer that a task needs at once; blocks come whole.
struct Least {
  std::int64_t kv = 0, gradients = 0;
};

Least least_pages(const SequenceLayout& layout, const StepSchedule& schedule) {
  const std::int64_t per = layout.chunk_tokens / layout.page_tokens;
  Least least;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.layer < 0) continue;
      const std::int64_t pages =
          std::min((task.visited.end + per - 1) / per * per, layout.pages()) -
          task.visited.begin / per * per;
      least.kv = std::max(least.kv, pages);
      if (task.kind == TaskKind::kLayerBackward) least.gradients = std::max(least.gradients, pages);
    }
  return {std::min(least.kv, schedule.peak_kv_pages),
          std::min(least.gradients, schedule.peak_gradient_pages)};
}

}  // namespace

std::int64_t least_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                const KvShape& shape) {
  const Least least = least_pages(layout, schedule);
  return least.kv * shape.page_bytes() + least.gradients * shape.gradient_page_bytes();
}

PageSpread spread_pages(const SequenceLayout& layout, const StepSchedule& schedule,
                        const KvShape& shape, const PageBudget& budget) {
  const std::int64_t kv_page = shape.page_bytes(), gradient_page = shape.gradient_page_bytes(),
                     all = schedule.peak_kv_pages * kv_page +
                           schedule.peak_gradient_pages * gradient_page;
  PageSpread spread;
  KvRoom& room = spread.room;
  room.logical_pages = layout.pages();
  room.pages_per_chunk = std::min(layout.chunk_tokens / layout.page_tokens, layout.pages());
  room.kv_pages = schedule.peak_kv_pages;
  room.gradient_pages = schedule.peak_gradient_pages;
  if (budget.device != PageBudget::kAll && budget.device < all) {
    const Least least = least_pages(layout, schedule);
    const std::int64_t needed = least.kv * kv_page + least.gradients * gradient_page,
                       spare = budget.device - needed;
    if (spare < 0)
      throw Error(
          fmt::format("{} for pages on the device: one layer's pages of {} tokens need {}",
                      text(std::max<std::int64_t>(budget.device, 0)), layout.tokens, text(needed)),
          "raise memory.gpu (--page-memory in bench step), shorten the context, or make the chunk "
          "smaller");
    const double share = static_cast<double>(spare) / static_cast<double>(all - needed);
    const auto grown = [&](std::int64_t from, std::int64_t to) {
      return from + static_cast<std::int64_t>(static_cast<double>(to - from) * share);
    };
    room.kv_pages = grown(least.kv, room.kv_pages);
    room.gradient_pages = grown(least.gradients, room.gradient_pages);
  }
  spread.kv_bytes = room.kv_pages * kv_page;
  spread.gradient_bytes = room.gradient_pages * gradient_page;

  // Every block may have to leave; host memory first, then the disk.
  std::int64_t host_left = budget.host;
  const auto place = [&](AwayRoom& away, std::int64_t block_bytes, bool fits) {
    if (fits) return;
    const std::int64_t blocks = shape.layers * layout.chunks();
    away.disk_directory = budget.disk_directory;
    away.host_blocks =
        host_left == PageBudget::kAll ? blocks : std::min(blocks, host_left / block_bytes);
    away.disk_blocks = blocks - away.host_blocks;
    if (host_left != PageBudget::kAll) host_left -= away.host_blocks * block_bytes;
    spread.host_bytes += away.host_blocks * block_bytes;
    spread.disk_bytes += away.disk_blocks * block_bytes;
  };
  place(room.kv_away, room.pages_per_chunk * kv_page, room.kv_pages == schedule.peak_kv_pages);
  place(room.gradient_away, room.pages_per_chunk * gradient_page,
        room.gradient_pages == schedule.peak_gradient_pages);
  if (budget.disk != PageBudget::kAll && spread.disk_bytes > budget.disk)
    throw Error(
        fmt::format("pages beyond the device need {}: {} of it fit in host memory, and {} are "
                    "allowed on disk",
                    text(spread.host_bytes + spread.disk_bytes), text(spread.host_bytes),
                    text(budget.disk)),
        "raise memory.host or memory.disk with memory.disk_path (in bench step: --host-memory, "
        "--disk-memory, --disk-path), or shorten the context");
  return spread;
}

}  // namespace longstride
