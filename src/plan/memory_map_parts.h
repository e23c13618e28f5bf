// What make_memory_map is made of; only for its own files. Each function adds its part to the map,
// whose tenants and time are known by then.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "plan/memory_map.h"
#include "schedule/step_schedule.h"

namespace longstride {

// When the tasks of a schedule run.
struct TaskTimes {
  const StepSchedule& schedule;
  std::vector<double> begins;  // of each task, in order; then the end of the last

  double end() const { return begins.back(); }
  // Calls f(task, begin, end) in order.
  template <class F>
  void for_tasks(const F& f) const {
    std::size_t i = 0;
    for (const Episode& episode : schedule.episodes)
      for (const Task& task : episode.tasks) {
        f(task, begins[i], begins[i + 1]);
        ++i;
      }
  }
  // Calls f(episode, the begins of its tasks and the end of the last) in order.
  template <class F>
  void for_episodes(const F& f) const {
    const double* first = begins.data();
    for (const Episode& episode : schedule.episodes) {
      f(episode, first);
      first += episode.tasks.size();
    }
  }
};

// The grid of the picture, about as fine as its pixels. Rounding never makes disjoint things
// overlap, because it keeps their order.
template <class Number>
Number snapped(Number value, Number cell, Number most) {
  const double cells = std::ceil(static_cast<double>(value) / static_cast<double>(cell) - 0.5);
  return std::min(static_cast<Number>(cells * static_cast<double>(cell)), most);
}
inline constexpr std::int64_t kMapRows = 1080, kMapColumns = 1640;  // half a pixel each
inline std::int64_t row_bytes(std::int64_t bytes) {
  return std::max<std::int64_t>(1, bytes / kMapRows);
}

// Drops levels that change nothing; if more than `most` are left, only the highest of each of
// `most` equal times is kept.
std::vector<MapLevel> simplified(const std::vector<MapLevel>& levels, double end,
                                 std::int64_t most = 1200);

// What the tensors of Retained are called, and their part.
inline constexpr std::array<const char*, kRetainedKinds> kTensorNames = {
    "input", "q", "attention", "mid", "gate", "up"};
inline MapPart part_of_kind(int kind) {
  return static_cast<MapPart>(static_cast<int>(MapPart::kInput) + kind);
}

MapPhaseKind phase_of(EpisodeKind kind);
const MapTenant* find_tenant(const MemoryMap& map, MapPart part);

void add_pages(MemoryMap& map, const StepPlan& plan, const TaskTimes& times,
               const MemoryMapInput& input);
void add_retained(MemoryMap& map, const StepPlan& plan, const TaskTimes& times,
                  const MemoryMapInput& input);
void add_swapped(MemoryMap& map, const StepPlan& plan, const TaskTimes& times,
                 const MemoryMapInput& input);
void add_workspace(MemoryMap& map, const StepPlan& plan, const TaskTimes& times);

}  // namespace longstride
