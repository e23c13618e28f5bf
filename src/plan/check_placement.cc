#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/placement.h"

namespace longstride {

std::string check_placement(const WorkspaceTrace& trace, const Placement& placement) {
  if (placement.offsets.size() != trace.size())
    return fmt::format("{} requests but {} addresses", trace.size(), placement.offsets.size());

  struct Event {
    std::int64_t time;
    bool starts;
    std::size_t request;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].end <= trace[i].begin)
      return fmt::format("request {} ('{}') ends before it begins", i, trace[i].name);
    events.push_back({trace[i].begin, true, i});
    events.push_back({trace[i].end, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.time, a.starts) < std::tie(b.time, b.starts);
  });

  std::map<std::int64_t, std::pair<std::int64_t, std::size_t>> occupied;  // begin -> (end, request)
  for (const Event& e : events) {
    const std::int64_t begin = placement.offsets[e.request], end = begin + trace[e.request].bytes;
    std::string_view name = trace[e.request].name;
    if (!e.starts) {
      if (end > begin) occupied.erase(begin);
      continue;
    }
    if (begin < 0 || begin % kPlacementAlignment != 0)
      return fmt::format("request {} ('{}') at {} is not aligned", e.request, name, begin);
    if (end > placement.bytes)
      return fmt::format("request {} ('{}') ends at {}, past the arena's {}", e.request, name, end,
                         placement.bytes);
    if (end == begin) continue;
    const auto next = occupied.lower_bound(begin);
    if (next != occupied.end() && next->first < end)
      return fmt::format("requests {} ('{}') and {} ('{}') overlap at {}", e.request, name,
                         next->second.second, trace[next->second.second].name, next->first);
    if (next != occupied.begin()) {
      const auto before = std::prev(next);
      if (before->second.first > begin)
        return fmt::format("requests {} ('{}') and {} ('{}') overlap at {}", e.request, name,
                           before->second.second, trace[before->second.second].name, begin);
    }
    occupied.emplace(begin, std::pair{end, e.request});
  }
  return "";
}

}  // namespace longstride
