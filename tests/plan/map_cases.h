// Plans whose memory maps are tested, and a checker of maps that shares no code with their maker.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "model/presets.h"
#include "plan/memory_map.h"

namespace longstride {

struct MapCase {
  std::string name;
  StepPlan plan;
  MemoryMapInput input;
  MemoryMap map() const { return make_memory_map(plan, input); }
};

struct MapCaseOptions {
  std::string name, preset = "tiny-qwen3";
  std::int64_t tokens = 700, chunk_tokens = 128, page_tokens = 32;
  std::int64_t keep_chunks = 1, window = 0;
  bool sparse = false, seconds = false;
  std::vector<Retention> retained = {};  // of every layer of the first chunks
  bool stream = false;                   // least pages on the device, the others elsewhere
  std::int64_t host = PageBudget::kAll;  // bytes of pages; those beyond are on disk
  std::vector<Retention> swapped = {};   // likewise; they leave the device and come back
  std::int64_t swapped_host = ActivationBudget::kAll;  // bytes of them; those beyond are on disk
};

inline MapCase map_case(const MapCaseOptions& o) {
  const bool tiny = o.preset.starts_with("tiny");
  ModelConfig config = find_preset(o.preset);
  if (o.window > 0) config.windows.assign(static_cast<std::size_t>(config.layers), o.window);
  NumericsRecord numerics;
  numerics.chunk_tokens = o.chunk_tokens;
  numerics.page_tokens = o.page_tokens;
  numerics.head_block_rows = 64;
  numerics.compute = tiny ? DType::kF32 : DType::kBF16;
  if (o.sparse) {
    numerics.sparse.budgets.assign(static_cast<std::size_t>(config.layers), 6);
    numerics.sparse.selection.union_pages = 12;
    numerics.sparse.selection.summary_tokens = o.page_tokens;
  }
  StepOptions options{.max_tokens = o.tokens, .keep_chunks = o.keep_chunks};
  const auto of_layers = [&](std::vector<Retention>& all, const std::vector<Retention>& chunks) {
    for (const Retention tensors : chunks)
      all.insert(all.end(), static_cast<std::size_t>(config.layers), tensors);
  };
  of_layers(options.across_episodes, o.retained);
  of_layers(options.offloaded, o.swapped);
  options.activations = {
      .host = o.swapped_host, .disk = ActivationBudget::kAll, .disk_directory = "/disk"};
  const Device& device = shapes_device(DeviceKind::kCpu);
  const StepPlanner planner(device, config, parameter_specs(config, numerics.compute), numerics,
                            options);
  PageBudget pages;
  if (o.stream)
    pages = {.device = planner.least_page_bytes(),
             .host = o.host,
             .disk = PageBudget::kAll,
             .disk_directory = "/disk"};
  MapCase result{o.name, planner.plan(pages), {}};
  MemoryMapInput& input = result.input;
  input.title = o.name;
  input.config = config;
  input.compute = numerics.compute;
  input.device = {{"weights", 1 << 20}, {"gradients", 2 << 20}};
  input.host = {{"optimizer", 4 << 20}};
  if (!o.seconds) return result;
  for (const Episode& episode :
       make_step_schedule(result.plan.layout(), result.plan.schedule).episodes)
    for (const Task& task : episode.tasks)
      input.task_seconds.push_back(1e-3 * static_cast<double>(1 + task.chunk));
  return result;
}

inline std::vector<MapCase> map_cases() {
  const Retention some{Retained::kInput, Retained::kAttention};
  std::vector<MapCase> cases;
  for (const MapCaseOptions& options : std::vector<MapCaseOptions>{
           {.name = "plain"},
           {.name = "one chunk", .tokens = 100},
           {.name = "all kept", .keep_chunks = 6},
           {.name = "retained", .keep_chunks = 2, .retained = {Retention::all(), some, {}, some}},
           {.name = "in seconds", .seconds = true, .retained = {some, some}},
           {.name = "streamed", .stream = true},
           {.name = "on disk", .tokens = 1500, .stream = true, .host = 1 << 17},
           {.name = "sparse", .tokens = 1500, .sparse = true, .stream = true},
           {.name = "windows", .tokens = 1500, .window = 100},
           {.name = "swapped", .retained = {{}, some}, .swapped = {Retention::all(), some, some}},
           {.name = "partly swapped",
           .tokens = 1500,
           .seconds = true,
           .stream = true,
           .swapped = std::vector<Retention>(5, {Retained::kAttention})},
           {.name = "swapped to disk",
           .tokens = 1500,
           .keep_chunks = 2,
           .swapped = std::vector<Retention>(9, some),
           .swapped_host = 3 << 18},
           {.name = "swapped, sparse",
           .tokens = 1500,
           .sparse = true,
           .swapped = std::vector<Retention>(8, some)},
           {.name = "large",
           .preset = "qwen2.5-0.5b",
           .tokens = 65536,
           .chunk_tokens = 2048,
           .page_tokens = 128,
           .retained = std::vector<Retention>(31, some),
           .stream = true}})
    cases.push_back(map_case(options));
  return cases;
}

// ---- what levels say ----

inline std::int64_t level_at(const std::vector<MapLevel>& levels, double time) {
  std::int64_t bytes = 0;
  for (const MapLevel& level : levels)
    if (level.begin <= time) bytes = level.bytes;
  return bytes;
}

inline std::int64_t most_of(const std::vector<MapLevel>& levels) {
  std::int64_t most = 0;
  for (const MapLevel& level : levels) most = std::max(most, level.bytes);
  return most;
}

// ---- the checker ----

// Rectangles, none of which may overlap; by `what` in messages.
class DisjointRects {
 public:
  void add(std::string what, std::int64_t address, std::int64_t bytes, double begin, double end) {
    if (bytes <= 0 || !(begin < end)) return;
    events_.push_back({begin, true, rects_.size()});
    events_.push_back({end, false, rects_.size()});
    rects_.push_back({std::move(what), address, address + bytes});
  }
  // "" or two that overlap.
  std::string overlap() {
    std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return a.time != b.time ? a.time < b.time : a.begins < b.begins;  // ends come first
    });
    std::map<std::int64_t, std::size_t> alive;  // by their first address
    for (const Event& event : events_) {
      const Rect& rect = rects_[event.rect];
      if (!event.begins) {
        alive.erase(rect.first);
        continue;
      }
      const auto above = alive.lower_bound(rect.first);
      const auto overlaps = [&](const Rect& other) {
        return rect.first < other.end && other.first < rect.end;
      };
      if (above != alive.end() && overlaps(rects_[above->second]))
        return rect.what + " overlaps " + rects_[above->second].what;
      if (above != alive.begin() && overlaps(rects_[std::prev(above)->second]))
        return rect.what + " overlaps " + rects_[std::prev(above)->second].what;
      alive[rect.first] = event.rect;
    }
    return "";
  }

 private:
  struct Rect {
    std::string what;
    std::int64_t first, end;
  };
  struct Event {
    double time;
    bool begins;
    std::size_t rect;
  };
  std::vector<Rect> rects_;
  std::vector<Event> events_;
};

inline std::string check_rects(const std::vector<MapRect>& rects, std::int64_t low,
                               std::int64_t high, double end, DisjointRects& disjoint) {
  for (const MapRect& r : rects) {
    if (r.address < low || r.address + r.bytes > high) continue;
    if (r.bytes <= 0 || r.begin < 0 || !(r.begin < r.end) || r.end > end)
      return r.label + " is empty or outside the step";
    disjoint.add(r.label, r.address, r.bytes, r.begin, r.end);
  }
  return "";
}

// "" or what is wrong: tenants follow each other from 0; all else is inside one, and disjoint.
inline std::string check_map(const MemoryMap& map) {
  DisjointRects disjoint;
  std::int64_t top = 0;
  std::size_t inside = 0, fills = 0;
  for (const MapTenant& tenant : map.tenants) {
    if (tenant.address != top || tenant.bytes <= 0) return tenant.name + " is not above the last";
    top += tenant.bytes;
    if (std::string wrong = check_rects(map.rects, tenant.address, top, map.end, disjoint);
        !wrong.empty())
      return wrong;
    for (const MapRect& r : map.rects)
      inside += r.address >= tenant.address && r.address + r.bytes <= top;
    for (const MapFill& fill : map.fills) {
      if (fill.address != tenant.address) continue;
      ++fills;
      if (fill.part != tenant.part) return "a fill is in " + tenant.name;
      if (fill.levels.empty() || fill.levels[0].begin != 0) return "a fill begins late";
      for (std::size_t i = 0; i < fill.levels.size(); ++i) {
        const bool last = i + 1 == fill.levels.size();
        const double end = last ? map.end : fill.levels[i + 1].begin;
        if (!(fill.levels[i].begin < end)) return "a fill's levels do not ascend";
        if (fill.levels[i].bytes > tenant.bytes) return "a fill exceeds " + tenant.name;
        disjoint.add("a fill of " + tenant.name, fill.address, fill.levels[i].bytes,
                     fill.levels[i].begin, end);
      }
    }
  }
  if (inside != map.rects.size()) return "a rectangle is outside its tenant";
  if (fills != map.fills.size()) return "a fill is outside its tenant";
  return disjoint.overlap();
}

}  // namespace longstride
