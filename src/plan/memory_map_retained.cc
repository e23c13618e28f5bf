// Retained activations in the map: each from the task that makes it to its layer's backward pass.
#include <array>
#include <string>

#include "base/error.h"
#include "plan/memory_map_parts.h"

namespace longstride {
namespace {

constexpr std::int64_t kMostRects = 2000;

// A run of tensors of one kind, of consecutive layers or chunks.
struct Slot {
  int kind = 0;
  std::int64_t chunk = 0, layer = 0, last_chunk = 0, last_layer = 0;
  std::int64_t address = 0, bytes = 0;
  double begin = 0, end = 0;

  void join(const Slot& next) {
    last_chunk = next.last_chunk;
    last_layer = next.last_layer;
    bytes += next.bytes;
    begin = std::min(begin, next.begin);
    end = std::max(end, next.end);
  }
  std::string label() const {
    const auto range = [](const char* what, std::int64_t first, std::int64_t last) {
      return first == last ? fmt::format("{} {}", what, first)
                           : fmt::format("{}s {} to {}", what, first, last);
    };
    return fmt::format("{}, {}", kTensorNames[static_cast<std::size_t>(kind)],
                       chunk == last_chunk
                           ? fmt::format("chunk {}, {}", chunk, range("layer", layer, last_layer))
                           : range("chunk", chunk, last_chunk));
  }
};

// When each tensor is made and needed for the last time: by chunk, layer and kind.
class Lifetimes {
 public:
  Lifetimes(const TaskTimes& times, std::int64_t layers, std::int64_t chunks)
      : layers_(layers), made_(static_cast<std::size_t>(layers * chunks)), ends_(made_.size()) {
    for (auto& of_kinds : made_) of_kinds.fill(-1.0);
    times.for_tasks([&](const Task& task, double begin, double end) {
      if (task.output_lasts) note(task.chunk, task.layer + 1, {Retained::kInput}, begin);
      if (task.kind == TaskKind::kLayerForward) note(task.chunk, task.layer, task.lasting, begin);
      if (task.kind == TaskKind::kLayerBackward) ends_[index(task.chunk, task.layer)] = end;
    });
  }
  // Negative: never.
  double made(std::int64_t chunk, std::int64_t layer, int kind) const {
    return made_[index(chunk, layer)][static_cast<std::size_t>(kind)];
  }
  double end(std::int64_t chunk, std::int64_t layer) const { return ends_[index(chunk, layer)]; }

 private:
  std::size_t index(std::int64_t chunk, std::int64_t layer) const {
    return static_cast<std::size_t>(chunk * layers_ + layer);
  }
  void note(std::int64_t chunk, std::int64_t layer, Retention tensors, double when) {
    for (int kind = 0; kind < kRetainedKinds; ++kind) {
      double& made = made_[index(chunk, layer)][static_cast<std::size_t>(kind)];
      if (tensors.has(static_cast<Retained>(kind)) && made < 0) made = when;
    }
  }

  std::int64_t layers_;
  std::vector<std::array<double, kRetainedKinds>> made_;
  std::vector<double> ends_;
};

// Bytes of each kind, as RetainedLayout lays them out.
std::array<std::int64_t, kRetainedKinds> sizes(const LayerPlaces& p) {
  const auto bytes = [](const View& view) {
    constexpr std::int64_t kAlignment = 256;
    return view.present() ? (view.bytes() + kAlignment - 1) / kAlignment * kAlignment : 0;
  };
  return {bytes(p.input_TD),
          bytes(p.q_THC) + bytes(p.k_TKC),
          bytes(p.attention_THC) + bytes(p.lse_HT),
          bytes(p.mid_TD),
          bytes(p.gate_TF),
          bytes(p.up_TF)};
}

// All tensors in the order of their addresses.
std::vector<Slot> list_slots(const MemoryMap& map, const StepPlan& plan, const TaskTimes& times,
                             const MemoryMapInput& input) {
  const RetainedLayout layout = plan.retained(input.config, input.compute);
  LS_CHECK(layout.bytes() == plan.memory.retained, "{} bytes retained in {} by the plan",
           layout.bytes(), plan.memory.retained);
  const Lifetimes lifetimes(times, map.layers, map.chunks);
  std::int64_t address = find_tenant(map, MapPart::kRetained)->address;
  std::vector<Slot> slots;
  const auto& retained = plan.schedule.across_episodes;
  for (std::int64_t i = 0; i < std::ssize(retained); ++i) {
    const std::int64_t chunk = i / map.layers, layer = i % map.layers;
    const auto bytes = sizes(layout.places(nullptr, chunk, layer, map.chunk_tokens,
                                           retained[static_cast<std::size_t>(i)]));
    for (int kind = 0; kind < kRetainedKinds; ++kind) {
      const std::int64_t size = bytes[static_cast<std::size_t>(kind)];
      if (size > 0 && chunk < map.chunks && lifetimes.made(chunk, layer, kind) >= 0)
        slots.push_back({kind, chunk, layer, chunk, layer, address, size,
                         lifetimes.made(chunk, layer, kind), lifetimes.end(chunk, layer)});
      address += size;
    }
  }
  return slots;
}

// Sorts the slots of every `chunks` chunks by kind, and moves them accordingly.
void sort_by_kind(std::vector<Slot>& slots, std::int64_t chunks) {
  for (auto first = slots.begin(), last = first; first != slots.end(); first = last) {
    last = std::find_if(first, slots.end(), [&](const Slot& slot) {
      return slot.chunk / chunks != first->chunk / chunks;
    });
    std::int64_t address = first->address;
    std::stable_sort(first, last, [](const Slot& a, const Slot& b) { return a.kind < b.kind; });
    for (auto slot = first; slot != last; ++slot) {
      slot->address = address;
      address += slot->bytes;
    }
  }
}

// Joins up to `most` neighbours of one kind, of the same `chunks` chunks.
std::vector<Slot> joined(const std::vector<Slot>& slots, std::int64_t chunks, std::int64_t most) {
  std::vector<Slot> result;
  std::int64_t members = 0;
  for (const Slot& slot : slots) {
    if (!result.empty() && members < most && result.back().kind == slot.kind &&
        result.back().chunk / chunks == slot.chunk / chunks) {
      result.back().join(slot);
      ++members;
    } else {
      result.push_back(slot);
      members = 1;
    }
  }
  return result;
}

}  // namespace

void add_retained(MemoryMap& map, const StepPlan& plan, const TaskTimes& times,
                  const MemoryMapInput& input) {
  if (plan.memory.retained == 0) return;
  std::vector<Slot> slots = list_slots(map, plan, times, input);
  const auto too_small = [&](const Slot& slot) { return slot.bytes < 2 * row_bytes(map.shown); };
  if (std::ssize(slots) > kMostRects || std::any_of(slots.begin(), slots.end(), too_small)) {
    const std::vector<Slot> all = slots;
    const std::int64_t mean = plan.memory.retained / std::max<std::int64_t>(1, std::ssize(slots));
    std::int64_t chunks = 1,
                 members = std::clamp<std::int64_t>(2 * row_bytes(map.shown) / mean, 1, map.layers);
    for (bool enough = false; !enough;) {
      slots = all;
      sort_by_kind(slots, chunks);
      slots = joined(slots, chunks, members);
      enough = std::ssize(slots) <= kMostRects;
      if (members < map.layers * chunks)
        members *= 2;
      else
        chunks *= 2;
    }
  }
  for (const Slot& slot : slots)
    map.rects.push_back(
        {part_of_kind(slot.kind), slot.address, slot.bytes, slot.begin, slot.end, slot.label()});
}

}  // namespace longstride
