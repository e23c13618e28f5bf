// Activations in the map that leave the device and come back: on their way, in host memory and on
// disk.
#include <string>
#include <utility>

#include "plan/memory_map_parts.h"

namespace longstride {
namespace {

// Bytes that change at certain times.
struct Amount {
  std::int64_t now = 0;
  std::vector<MapLevel> levels = {{0.0, 0}};
  void add(double when, std::int64_t bytes) {
    now += bytes;
    levels.push_back({when, now});
  }
};

// Off the device, by kind. Records of a kind fill host memory first, by chunk, then layer.
class Records {
 public:
  Records(const StepPlan& plan, std::int64_t layers) : layers_(layers) {
    const std::vector<Retention> saved = plan.saved();
    for (int kind = 0; kind < kRetainedKinds; ++kind) {
      std::int64_t place = 0;
      std::vector<bool>& on_disk = on_disk_[static_cast<std::size_t>(kind)];
      for (const Retention of_layer : saved) {
        const bool here = of_layer.has(static_cast<Retained>(kind));
        on_disk.push_back(here &&
                          place >= plan.activations[static_cast<std::size_t>(kind)].host_records);
        place += here ? 1 : 0;
      }
    }
  }
  bool on_disk(int kind, std::int64_t chunk, std::int64_t layer) const {
    return on_disk_[static_cast<std::size_t>(kind)].at(
        static_cast<std::size_t>(chunk * layers_ + layer));
  }

 private:
  std::int64_t layers_;
  std::array<std::vector<bool>, kRetainedKinds> on_disk_;
};

struct Swapped {
  Amount leaving, landing;
  std::array<Amount, kRetainedKinds> host, disk;
};

class Counter {
 public:
  Counter(const MemoryMap& map, const StepPlan& plan, const ActivationSizes& sizes)
      : records_(plan, map.layers),
        sizes_(sizes),
        chunk_tokens_(map.chunk_tokens),
        landed_(static_cast<std::size_t>(map.layers), 0) {}

  Swapped count(const TaskTimes& times) {
    times.for_episodes([&](const Episode& episode, const double* begins) {
      for (std::size_t i = 0; i < episode.tasks.size(); ++i)
        add(episode.tasks[i], begins[i], begins[i + 1]);
      swapped_.leaving.add(begins[episode.tasks.size()], -swapped_.leaving.now);
    });
    return std::move(swapped_);
  }

 private:
  // As ChunkRunner does it: what a task saves takes its memory until the next ones are saved or the
  // episode ends; what it fetches until the layer's backward pass ends.
  void add(const Task& task, double begin, double end) {
    if (!task.fetches.empty()) {
      landed_[static_cast<std::size_t>(task.fetches_layer)] = bytes(task.fetches);
      swapped_.landing.add(begin, bytes(task.fetches));
      move(task.fetches, task.chunk, task.fetches_layer, end, -1);
    }
    if (!task.saved.empty()) {
      swapped_.leaving.add(end, bytes(task.saved) - swapped_.leaving.now);
      move(task.saved, task.chunk, task.layer, end, 1);
    }
    if (task.kind == TaskKind::kLayerBackward)
      swapped_.landing.add(end, -std::exchange(landed_[static_cast<std::size_t>(task.layer)], 0));
  }
  void move(Retention tensors, std::int64_t chunk, std::int64_t layer, double when, int sign) {
    for (int kind = 0; kind < kRetainedKinds; ++kind) {
      const auto which = static_cast<Retained>(kind);
      if (!tensors.has(which)) continue;
      auto& tier = records_.on_disk(kind, chunk, layer) ? swapped_.disk : swapped_.host;
      tier[static_cast<std::size_t>(kind)].add(when, sign * bytes({which}));
    }
  }
  std::int64_t bytes(Retention tensors) const {
    return activation_bytes(sizes_, chunk_tokens_, tensors);
  }

  Records records_;
  ActivationSizes sizes_;
  std::int64_t chunk_tokens_;
  std::vector<std::int64_t> landed_;  // by layer
  Swapped swapped_;
};

void add_moving(MemoryMap& map, const std::string& name, MapPart part, const Amount& amount) {
  std::int64_t most = 0;
  for (const MapLevel& level : amount.levels) most = std::max(most, level.bytes);
  map.moving.push_back({name, part, most, simplified(amount.levels, map.end)});
}

}  // namespace

void add_swapped(MemoryMap& map, const StepPlan& plan, const TaskTimes& times,
                 const MemoryMapInput& input) {
  if (plan.memory.host_activations + plan.memory.disk_activations == 0) return;
  const ActivationSizes sizes(input.config, input.compute, plan.schedule.stage.heads);
  const Swapped swapped = Counter(map, plan, sizes).count(times);
  add_moving(map, "activations leaving", MapPart::kLeaving, swapped.leaving);
  add_moving(map, "activations landing", MapPart::kLanding, swapped.landing);
  // What is always there lies lower.
  std::int64_t buffers = 0;
  for (int kind = 0; kind < kRetainedKinds; ++kind) {
    const OffloadCapacity& capacity = plan.activations[static_cast<std::size_t>(kind)];
    if (capacity.disk_records > 0)
      buffers += capacity.disk_buffers *
                 activation_bytes(sizes, map.chunk_tokens, {static_cast<Retained>(kind)});
  }
  if (buffers > 0)
    map.host.push_back(
        {"disk buffers of activations", MapPart::kDiskBuffers, buffers, {{0.0, buffers}}});
  for (int kind = 0; kind < kRetainedKinds; ++kind) {
    const auto k = static_cast<std::size_t>(kind);
    const OffloadCapacity& capacity = plan.activations[k];
    const std::int64_t record =
        activation_bytes(sizes, map.chunk_tokens, {static_cast<Retained>(kind)});
    const auto add = [&](std::vector<MapLane>& lanes, std::int64_t records, const Amount& amount) {
      if (records > 0)
        lanes.push_back({fmt::format("activations: {}", kTensorNames[k]), part_of_kind(kind),
                         records * record, simplified(amount.levels, map.end)});
    };
    add(map.host, capacity.host_records, swapped.host[k]);
    add(map.disk, capacity.disk_records, swapped.disk[k]);
  }
}

}  // namespace longstride
