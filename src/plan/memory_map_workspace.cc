// The workspace in the map: tensors of episodes that are wide enough to see, the height of the
// others, and a close-up of each kind of episode.
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/sizes.h"
#include "plan/memory_map_parts.h"

namespace longstride {
namespace {

constexpr std::int64_t kMostRects = 3000;     // of all episodes together
constexpr std::int64_t kCloseUpRects = 1500;  // of one close-up
constexpr std::int64_t kCloseUpLayers = 4;    // of a forward pass, whose layers are all alike

constexpr std::string_view kFetched = "fetched ";  // begins the names of tensors that come back

MapPart part_of(std::string_view name) {
  if (name.starts_with(kFetched)) name.remove_prefix(kFetched.size());
  const auto has = [&](std::string_view word) { return name.find(word) != name.npos; };
  if (has("scratch") || has("logits") || has("partial")) return MapPart::kScratch;
  if (name.starts_with("d ") || name == "dq" || name == "dk" || name == "dv")
    return MapPart::kGradient;
  if (name == "residual" || name == "input") return MapPart::kInput;
  if (name == "q" || name == "rotated q") return MapPart::kQ;
  if (name == "attention" || name == "lse") return MapPart::kAttention;
  if (name == "mid") return MapPart::kMid;
  if (name == "gate") return MapPart::kGate;
  if (name == "up") return MapPart::kUp;
  return MapPart::kOther;
}

// The time of an episode's events, given that of its tasks. A trace does not say which task an
// event is of; but every head task takes its targets first, and there backward passes begin.
class EventTimes {
 public:
  EventTimes(const Episode& episode, const WorkspaceTrace& trace, const double* begins) {
    const auto events = 2 * std::ssize(trace);
    std::vector<Anchor> heads;
    for (std::size_t i = 0; i < episode.tasks.size(); ++i)
      if (episode.tasks[i].kind == TaskKind::kHead) heads.push_back({0, begins[i]});
    std::size_t next = 0;
    for (const WorkspaceRequest& request : trace)
      if (request.name == "targets" && next < heads.size()) heads[next++].event = request.begin;
    if (next < heads.size()) heads.clear();
    anchors_.push_back({0, begins[0]});
    anchors_.insert(anchors_.end(), heads.begin(), heads.end());
    anchors_.push_back({events, begins[episode.tasks.size()]});
  }
  double operator()(std::int64_t event) const {
    std::size_t i = 1;
    while (i + 1 < anchors_.size() && event > anchors_[i].event) ++i;
    const Anchor &from = anchors_[i - 1], &to = anchors_[i];
    if (to.event == from.event) return to.time;
    return from.time + (to.time - from.time) * static_cast<double>(event - from.event) /
                           static_cast<double>(to.event - from.event);
  }

 private:
  struct Anchor {
    std::int64_t event = 0;
    double time = 0;
  };
  std::vector<Anchor> anchors_;
};

struct Grid {
  double column, end;       // of the time, which ends there
  std::int64_t row, bytes;  // of the addresses, likewise
};

struct Tensors {
  std::vector<MapRect> rects;
  double seen = 0;  // share of all tensors' bytes, each times its lifetime, that can be seen well
};

// The tensors of an episode that cover a cell's middle, rounded to the grid; from `address` on. Not
// those far smaller than a cell.
Tensors tensors(const PlacedEpisode& placed, const EventTimes& times, const Grid& grid,
                std::int64_t address, const std::string& of) {
  Tensors result;
  double all = 0, seen = 0;
  for (std::size_t i = 0; i < placed.trace.size(); ++i) {
    const WorkspaceRequest& request = placed.trace[i];
    const std::int64_t offset = placed.placement.offsets[i],
                       low = snapped(offset, grid.row, grid.bytes),
                       high = snapped(offset + request.bytes, grid.row, grid.bytes);
    const double from = times(request.begin), to = times(request.end),
                 begin = snapped(from, grid.column, grid.end),
                 end = snapped(to, grid.column, grid.end),
                 area = static_cast<double>(request.bytes) * (to - from);
    all += area;
    if (2 * request.bytes >= 3 * grid.row && to - from >= 4 * grid.column) seen += area;
    if (low < high && begin < end && 8 * request.bytes >= grid.row)
      result.rects.push_back({part_of(request.name), address + low, high - low, begin, end,
                              fmt::format("{}, {}{}", request.name,
                                          format_bytes(static_cast<double>(request.bytes)), of),
                              request.name.starts_with(kFetched)});
  }
  result.seen = all > 0 ? seen / all : 0;
  return result;
}

// The highest address in use after each event.
std::vector<std::int64_t> heights(const PlacedEpisode& placed) {
  std::vector<std::int64_t> changes(2 * placed.trace.size(), 0), result;
  for (std::size_t i = 0; i < placed.trace.size(); ++i) {
    const WorkspaceRequest& request = placed.trace[i];
    const std::int64_t top = placed.placement.offsets[i] + request.bytes;
    changes[static_cast<std::size_t>(request.begin)] = top;
    changes[static_cast<std::size_t>(request.end)] = -top;
  }
  std::multiset<std::int64_t> tops;
  for (const std::int64_t change : changes) {
    if (change > 0) tops.insert(change);
    if (change < 0) tops.erase(tops.find(-change));
    result.push_back(tops.empty() ? 0 : *tops.rbegin());
  }
  return result;
}

std::string chunk_text(const Episode& episode) {
  std::int64_t first = episode.tasks.front().chunk, last = first;
  for (const Task& task : episode.tasks) last = std::max(last, task.chunk);
  return first == last       ? fmt::format("chunk {}", first)
         : first + 1 == last ? fmt::format("chunks {} and {}", first, last)
                             : fmt::format("chunks {} to {}", first, last);
}

bool is_forward(const Episode& episode) {
  return episode.kind == EpisodeKind::kForward || episode.kind == EpisodeKind::kWavefront;
}

std::string close_up_name(const Episode& episode, std::int64_t layers) {
  const char* what = is_forward(episode)                  ? "forward"
                     : episode.kind == EpisodeKind::kKept ? "forward and backward, kept"
                                                          : "recomputed and backward";
  const std::string name = fmt::format("{} {}", chunk_text(episode), what);
  return is_forward(episode) && layers > kCloseUpLayers
             ? fmt::format("{}, {} of {} layers", name, kCloseUpLayers, layers)
             : name;
}

// Time is that of the tasks, from 0 to 1; of a forward pass only the first layers are shown.
MapCloseUp close_up(const Episode& episode, const PlacedEpisode& placed, const double* begins,
                    std::int64_t layers) {
  const std::size_t tasks = episode.tasks.size();
  const double length = begins[tasks] - begins[0],
               longer = !is_forward(episode)
                            ? 1.0
                            : static_cast<double>(std::max(layers, kCloseUpLayers)) /
                                  static_cast<double>(kCloseUpLayers);
  std::vector<double> relative;  // an episode that takes no time counts tasks
  for (std::size_t i = 0; i <= tasks; ++i)
    relative.push_back(longer * (length > 0 ? (begins[i] - begins[0]) / length
                                            : static_cast<double>(i) / static_cast<double>(tasks)));
  const EventTimes times(episode, placed.trace, relative.data());
  MapCloseUp result{
      close_up_name(episode, layers), placed.placement.bytes, live_bytes_bound(placed.trace), {}};
  // Fine enough for every event at first.
  for (std::int64_t columns = 4 * std::ssize(placed.trace), rows = 400;; columns /= 2, rows /= 2) {
    const Grid grid{1.0 / static_cast<double>(std::max<std::int64_t>(columns, 1)), 1.0,
                    std::max<std::int64_t>(1, result.bytes / rows), result.bytes};
    result.rects = tensors(placed, times, grid, 0, "").rects;
    if (std::ssize(result.rects) <= kCloseUpRects || rows < 8) return result;
  }
}

// Height over the columns of the picture of the episodes that are not shown in detail.
class Outline {
 public:
  Outline(double end, std::int64_t row, std::int64_t bytes)
      : column_(end / static_cast<double>(kMapColumns)),
        row_(row),
        bytes_(bytes),
        columns_(kMapColumns, 0) {}

  void add(const std::vector<std::int64_t>& heights, const EventTimes& times) {
    for (std::int64_t event = 0; event < std::ssize(heights); ++event)
      for (std::size_t c = column_of(times(event)); c <= column_of(times(event + 1)); ++c)
        columns_[c] = std::max(columns_[c], heights[static_cast<std::size_t>(event)]);
  }
  // Leaves space for an episode's tensors, which are rounded to the same columns.
  void clear(double begin, double end) {
    const auto edge = [&](double time) {
      return std::lround(snapped(time, column_, column_ * kMapColumns) / column_);
    };
    std::fill(columns_.begin() + edge(begin), columns_.begin() + edge(end), 0);
  }
  std::vector<MapLevel> levels(double end) const {
    std::vector<MapLevel> result;
    for (std::size_t c = 0; c < columns_.size(); ++c)
      result.push_back({static_cast<double>(c) * column_, snapped(columns_[c], row_, bytes_)});
    return simplified(result, end, kMapColumns);
  }

 private:
  std::size_t column_of(double time) const {
    return std::min(static_cast<std::size_t>(time / column_), columns_.size() - 1);
  }

  double column_;
  std::int64_t row_, bytes_;
  std::vector<std::int64_t> columns_;
};

struct Entry {
  const Episode* episode;
  const PlacedEpisode* placed;
  const double* begins;
  double begin() const { return begins[0]; }
  double end() const { return begins[episode->tasks.size()]; }
  EventTimes times() const { return {*episode, placed->trace, begins}; }
};

// Tensors of the episodes whose tensors can be seen; those of the others are empty. If they are too
// many, a whole phase goes without, so that its episodes look alike.
std::vector<std::vector<MapRect>> choose_details(const MemoryMap& map,
                                                 const std::vector<Entry>& entries) {
  const MapTenant& tenant = *find_tenant(map, MapPart::kWorkspace);
  const Grid grid{map.end / static_cast<double>(kMapColumns), map.end, row_bytes(map.shown),
                  tenant.bytes};
  constexpr double kLeastSeen = 0.35;
  std::vector<std::vector<MapRect>> details(entries.size());
  std::int64_t left = kMostRects;
  for (const MapPhaseKind phase :
       {MapPhaseKind::kKept, MapPhaseKind::kBackward, MapPhaseKind::kForward}) {
    std::int64_t rects = 0;
    const auto for_phase = [&](const auto& f) {
      for (std::size_t i = 0; i < entries.size(); ++i)
        if (phase_of(entries[i].episode->kind) == phase) f(entries[i], details[i]);
    };
    for_phase([&](const Entry& entry, std::vector<MapRect>& shown) {
      // Far too narrow, or too many already: saves the time.
      if (entry.end() - entry.begin() < 8 * grid.column || rects > left) return;
      Tensors all = tensors(*entry.placed, entry.times(), grid, tenant.address,
                            ", " + chunk_text(*entry.episode));
      if (all.seen < kLeastSeen) return;
      rects += std::ssize(all.rects);
      shown = std::move(all.rects);
    });
    if (rects > left)
      for_phase([](const Entry&, std::vector<MapRect>& shown) { shown.clear(); });
    else
      left -= rects;
  }
  return details;
}

}  // namespace

void add_workspace(MemoryMap& map, const StepPlan& plan, const TaskTimes& times) {
  const MapTenant* tenant = find_tenant(map, MapPart::kWorkspace);
  if (tenant == nullptr) return;
  std::vector<Entry> entries;
  times.for_episodes([&](const Episode& episode, const double* begins) {
    entries.push_back({&episode, &plan.placed(episode), begins});
  });

  const std::vector<std::vector<MapRect>> details = choose_details(map, entries);
  Outline outline(map.end, row_bytes(map.shown), tenant->bytes);
  std::map<const PlacedEpisode*, std::vector<std::int64_t>> known_heights;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!details[i].empty()) continue;
    auto& of_events = known_heights[entries[i].placed];
    if (of_events.empty()) of_events = heights(*entries[i].placed);
    outline.add(of_events, entries[i].times());
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (details[i].empty()) continue;
    outline.clear(entries[i].begin(), entries[i].end());
    map.rects.insert(map.rects.end(), details[i].begin(), details[i].end());
  }
  if (!known_heights.empty())
    map.fills.push_back({MapPart::kWorkspace, tenant->address, outline.levels(map.end)});

  // The middle one of each kind.
  std::map<MapPhaseKind, std::vector<const Entry*>> kinds;
  for (const Entry& entry : entries) kinds[phase_of(entry.episode->kind)].push_back(&entry);
  for (const auto& [kind, all] : kinds) {
    const Entry& entry = *all[all.size() / 2];
    map.close_ups.push_back(close_up(*entry.episode, *entry.placed, entry.begins, map.layers));
  }
}

}  // namespace longstride
