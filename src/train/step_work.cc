#include "train/step_work.h"

#include <algorithm>
#include <map>

namespace longstride {
namespace {

// Keys of all queries from `begin` to `end` of a document that starts at `start`.
double visible_keys(std::int64_t start, std::int64_t begin, std::int64_t end, std::int64_t window) {
  const auto causal = [&](std::int64_t n) {
    const std::int64_t reach = window > 0 ? std::min(n, window) : n;
    const auto all = static_cast<double>(n), w = static_cast<double>(reach);
    return w * (w + 1) / 2 + (all - w) * w;
  };
  return causal(end - start) - causal(begin - start);
}

}  // namespace

double StepWork::keys_per_query(const Task& task) const {
  const std::int64_t begin = layout_.chunk_begin(task.chunk),
                     end = begin + layout_.chunk_size(task.chunk), page = layout_.page_tokens;
  const std::int64_t window =
      task.sparse ? 0 : config_.windows[static_cast<std::size_t>(task.layer)];
  double keys = 0;
  for (std::int64_t from = begin; from < end;) {
    const std::int64_t start = layout_.document_start(from);
    const auto next = std::ranges::upper_bound(layout_.document_starts, from);
    const std::int64_t to = next == layout_.document_starts.end() ? end : std::min(end, *next);
    if (task.sparse) {
      // The chunk's own keys, and pages of the document before it.
      const std::int64_t pages = std::min(numerics_.sparse.budget(task.layer),
                                          std::max<std::int64_t>(0, begin - start) / page);
      keys += visible_keys(std::max(start, begin), from, to, 0) +
              static_cast<double>((to - from) * pages * page);
    } else {
      keys += visible_keys(start, from, to, window);
    }
    from = to;
  }
  return keys / static_cast<double>(end - begin);
}

double StepWork::flops(const Task& task) const {
  const TaskWork work = tasks_.count(task);
  double flops = work.score_flops;
  for (std::size_t i = 0; i < work.product_count; ++i) flops += work.products[i].flops();
  // Zero if the task does not attend.
  if (work.attention.flops_per_key > 0)
    flops += work.attention.flops_per_key * keys_per_query(task);
  return flops;
}

double StepWork::flops(const StepSchedule& schedule) const {
  double sum = 0;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) sum += flops(task);
  return sum;
}

std::vector<double> sequence_begins(const ModelConfig& config, const NumericsRecord& numerics,
                                    const ScheduleOptions& options,
                                    std::span<const std::int64_t> sizes) {
  std::map<std::int64_t, double> by_size;
  for (const std::int64_t size : sizes) by_size.emplace(size, 1.0);
  // Most steps have sequences of one size, which need no count.
  if (by_size.size() > 1)
    for (auto& [size, flops] : by_size) {
      const SequenceLayout layout{size, numerics.chunk_tokens, numerics.page_tokens};
      flops = StepWork(config, numerics, layout).flops(make_step_schedule(layout, options));
    }
  std::vector<double> begins = {0.0};
  for (const std::int64_t size : sizes) begins.push_back(begins.back() + by_size.at(size));
  const double all = begins.back();
  for (double& begin : begins) begin /= all;
  return begins;
}

}  // namespace longstride
