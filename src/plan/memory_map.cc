#include "plan/memory_map.h"

#include <utility>

#include "base/error.h"
#include "plan/memory_map_parts.h"

namespace longstride {
namespace {

TaskTimes times_of(const StepSchedule& schedule, const std::vector<double>& seconds) {
  std::size_t tasks = 0;
  for (const Episode& episode : schedule.episodes) tasks += episode.tasks.size();
  LS_CHECK(seconds.empty() || seconds.size() == tasks, "{} times of {} tasks", seconds.size(),
           tasks);
  TaskTimes times{schedule, {0.0}};
  times.begins.reserve(tasks + 1);
  for (std::size_t i = 0; i < tasks; ++i) {
    const double taken = seconds.empty() ? 1.0 : seconds[i];
    LS_CHECK(taken >= 0 && std::isfinite(taken), "task {} takes {} s", i, taken);
    times.begins.push_back(times.begins.back() + taken);
  }
  LS_CHECK(times.end() > 0, "the step takes no time");
  return times;
}

// Bytes of the most pages that exist at once, wherever they are.
std::int64_t bytes_of_most(const std::vector<PoolCapacity>& pools) {
  std::int64_t bytes = 0;
  for (const PoolCapacity& pool : pools) bytes += pool.most * pool.page_bytes;
  return bytes;
}

void add_tenants(MemoryMap& map, const StepPlan& plan, const MemoryMapInput& input) {
  const auto add = [&](const std::string& name, MapPart part, std::int64_t bytes,
                       std::int64_t wanted) {
    if (bytes == 0) return;
    map.tenants.push_back({name, part, map.used(), bytes, wanted});
    if (part == MapPart::kFixed || part == MapPart::kSummaries)
      map.rects.push_back({part, map.tenants.back().address, bytes, 0.0, map.end, name});
  };
  for (const NamedBytes& fixed : input.device)
    add(fixed.name, MapPart::kFixed, fixed.bytes, fixed.bytes);
  const StepMemory& m = plan.memory;
  add("KV pages", MapPart::kKvPages, m.kv_pages, bytes_of_most(plan.pages.kv));
  add("KV gradient pages", MapPart::kKvGradients, m.kv_gradient_pages,
      bytes_of_most(plan.pages.gradients));
  add("page summaries", MapPart::kSummaries, m.summaries, m.summaries);
  add("wide pages", MapPart::kSummaries, m.wide_pages, m.wide_pages);
  add("rotary frequencies", MapPart::kFixed, m.rope, m.rope);
  add("retained activations", MapPart::kRetained, m.retained, m.retained);
  add("workspace", MapPart::kWorkspace, m.workspace, m.workspace);
}

// A device that is mostly empty is shown only as far as it is used, and some way above.
std::int64_t shown_bytes(std::int64_t used, std::int64_t available) {
  if (available <= used) return used + used / 16;
  return used >= available / 2 ? available : used + used / 8;
}

void add_phases(MemoryMap& map, const TaskTimes& times) {
  times.for_episodes([&](const Episode& episode, const double* begins) {
    const double begin = begins[0], end = begins[episode.tasks.size()];
    map.episodes.push_back(begin);
    const MapPhaseKind kind = phase_of(episode.kind);
    if (map.phases.empty() || map.phases.back().kind != kind)
      map.phases.push_back({kind, begin, end, 0});
    map.phases.back().end = end;
    map.phases.back().chunks += episode.chunks;
  });
}

}  // namespace

std::vector<MapLevel> simplified(const std::vector<MapLevel>& levels, double end,
                                 std::int64_t most) {
  std::vector<MapLevel> changes;
  for (const MapLevel& level : levels) {
    if (!changes.empty() && changes.back().begin == level.begin) changes.pop_back();
    if (changes.empty() || changes.back().bytes != level.bytes) changes.push_back(level);
  }
  if (std::ssize(changes) <= most) return changes;
  std::vector<MapLevel> columns;
  std::size_t next = 0;
  std::int64_t current = 0;
  for (std::int64_t column = 0; column < most; ++column) {
    const double begin = end * static_cast<double>(column) / static_cast<double>(most),
                 until = end * static_cast<double>(column + 1) / static_cast<double>(most);
    std::int64_t highest = next < changes.size() && changes[next].begin <= begin ? 0 : current;
    for (; next < changes.size() && changes[next].begin < until; ++next) {
      current = changes[next].bytes;
      highest = std::max(highest, current);
    }
    if (columns.empty() || columns.back().bytes != highest) columns.push_back({begin, highest});
  }
  return columns;
}

MapPhaseKind phase_of(EpisodeKind kind) {
  return kind == EpisodeKind::kKept        ? MapPhaseKind::kKept
         : kind == EpisodeKind::kRecompute ? MapPhaseKind::kBackward
                                           : MapPhaseKind::kForward;
}

const MapTenant* find_tenant(const MemoryMap& map, MapPart part) {
  for (const MapTenant& tenant : map.tenants)
    if (tenant.part == part) return &tenant;
  return nullptr;
}

MemoryMap make_memory_map(const StepPlan& plan, const MemoryMapInput& input) {
  const SequenceLayout layout = plan.layout();
  const StepSchedule schedule = make_step_schedule(layout, plan.schedule);
  const TaskTimes times = times_of(schedule, input.task_seconds);
  MemoryMap map;
  map.title = input.title;
  map.tokens = plan.max_tokens;
  map.chunk_tokens = std::min(plan.chunk_tokens, plan.max_tokens);
  map.chunks = layout.chunks();
  map.layers = input.config.layers;
  map.end = times.end();
  map.in_seconds = !input.task_seconds.empty();
  add_phases(map, times);
  add_tenants(map, plan, input);
  map.available = input.available;
  map.shown = shown_bytes(map.used(), map.available);
  add_pages(map, plan, times, input);
  add_swapped(map, plan, times, input);
  add_retained(map, plan, times, input);
  add_workspace(map, plan, times);
  return map;
}

}  // namespace longstride
