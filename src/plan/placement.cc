#include "plan/placement.h"

#include <algorithm>
#include <numeric>

namespace longstride {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kPlacementAlignment - 1) / kPlacementAlignment * kPlacementAlignment;
}

}  // namespace

Placement place_greedy(const WorkspaceTrace& trace) {
  std::vector<std::size_t> order(trace.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Equal sizes: the longer-lived first, then by order of request, so that the result is
  // deterministic.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (trace[a].bytes != trace[b].bytes) return trace[a].bytes > trace[b].bytes;
    return trace[a].end - trace[a].begin > trace[b].end - trace[b].begin;
  });

  struct Placed {
    std::int64_t begin, end;               // addresses
    std::int64_t first_event, last_event;  // lifetime
  };
  std::vector<Placed> placed;  // ascending by begin
  Placement result;
  result.offsets.assign(trace.size(), 0);
  for (const std::size_t i : order) {
    const WorkspaceRequest& r = trace[i];
    const std::int64_t size = aligned(r.bytes);
    std::int64_t at = 0;
    for (const Placed& p : placed) {
      if (p.last_event <= r.begin || r.end <= p.first_event) continue;
      if (at + size <= p.begin) break;
      at = std::max(at, p.end);
    }
    const Placed mine{at, at + size, r.begin, r.end};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), mine,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        mine);
    result.offsets[i] = at;
    result.bytes = std::max(result.bytes, at + size);
  }
  return result;
}

std::int64_t live_bytes_bound(const WorkspaceTrace& trace) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // event, bytes
  for (const WorkspaceRequest& r : trace) {
    changes.emplace_back(r.begin, aligned(r.bytes));
    changes.emplace_back(r.end, -aligned(r.bytes));
  }
  std::sort(changes.begin(),
            changes.end());  // at one event a release (negative) comes before a request
  std::int64_t live = 0, most = 0;
  for (const auto& [event, bytes] : changes) most = std::max(most, live += bytes);
  return most;
}

}  // namespace longstride
