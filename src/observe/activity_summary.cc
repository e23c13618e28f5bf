#include "observe/activity_summary.h"

#include <algorithm>
#include <map>

namespace longstride {
namespace {

constexpr double kNanosecond = 1e-9;

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * kNanosecond; }

}  // namespace

std::uint32_t computing_queue(const std::vector<Activity>& activities) {
  std::map<std::uint32_t, std::uint64_t> busy;
  for (const Activity& a : activities)
    if (a.kind == Activity::Kind::kKernel) busy[a.queue] += a.end_ns - a.begin_ns;
  const auto most = std::max_element(
      busy.begin(), busy.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == busy.end() ? 0 : most->first;
}

ActivitySummary summarize(const std::vector<Activity>& activities) {
  ActivitySummary s;
  if (activities.empty()) return s;
  std::vector<const Activity*> by_begin;
  std::map<std::string_view, ActivitySummary::Row> rows;
  std::uint64_t first = activities.front().begin_ns, last = 0;
  const std::uint32_t queue = computing_queue(activities);
  for (const Activity& a : activities) {
    first = std::min(first, a.begin_ns);
    last = std::max(last, a.end_ns);
    ActivitySummary::Row& row = rows[a.name];
    ++row.calls;
    row.seconds += seconds(a.end_ns - a.begin_ns);
    if (a.queue == queue) by_begin.push_back(&a);
  }
  std::sort(by_begin.begin(), by_begin.end(),
            [](const Activity* a, const Activity* b) { return a->begin_ns < b->begin_ns; });
  std::uint64_t reached = first, idle = 0;
  for (const Activity* a : by_begin) {
    if (a->begin_ns > reached) {
      idle += a->begin_ns - reached;
      rows[a->name].idle_before_s += seconds(a->begin_ns - reached);
    }
    reached = std::max(reached, a->end_ns);
  }
  s.span_s = seconds(last - first);
  s.idle_s = seconds(idle + (last - reached));
  for (auto& [name, row] : rows) {
    row.name = name;
    s.rows.push_back(row);
  }
  std::stable_sort(s.rows.begin(), s.rows.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return s;
}

OrderedJson to_json(const ActivitySummary& s) {
  OrderedJson rows = OrderedJson::array();
  for (const ActivitySummary::Row& row : s.rows)
    rows.push_back({{"name", row.name},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"idle_before_s", row.idle_before_s}});
  return {{"span_s", s.span_s}, {"idle_share", s.idle_share()}, {"rows", rows}};
}

}  // namespace longstride
