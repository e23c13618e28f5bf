#include "plan/placement.h"

#include <algorithm>
#include <numeric>

namespace longstride {
namespace {

// Ascending by `before`; equal ones by order of request, so that the result is deterministic.
template <typename Before>
std::vector<std::size_t> order_by(const WorkspaceTrace& trace, const Before& before) {
  std::vector<std::size_t> order(trace.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return before(trace[a], trace[b]); });
  return order;
}

std::int64_t lifetime(const WorkspaceRequest& r) { return r.end - r.begin; }

bool is_larger(const WorkspaceRequest& a, const WorkspaceRequest& b) {
  if (a.bytes != b.bytes) return a.bytes > b.bytes;
  return lifetime(a) > lifetime(b);
}
bool lives_longer(const WorkspaceRequest& a, const WorkspaceRequest& b) {
  if (lifetime(a) != lifetime(b)) return lifetime(a) > lifetime(b);
  return a.bytes > b.bytes;
}
bool takes_more(const WorkspaceRequest& a, const WorkspaceRequest& b) {
  const auto area = [](const WorkspaceRequest& r) {
    return static_cast<double>(r.bytes) * static_cast<double>(lifetime(r));
  };
  return area(a) > area(b);
}
bool comes_first(const WorkspaceRequest& a, const WorkspaceRequest& b) { return a.begin < b.begin; }

}  // namespace

Placement place_in_order(const WorkspaceTrace& trace, const std::vector<std::size_t>& order) {
  struct Placed {
    std::int64_t begin, end;               // addresses
    std::int64_t first_event, last_event;  // lifetime
  };
  std::vector<Placed> placed;  // ascending by begin
  placed.reserve(trace.size());
  Placement result;
  result.offsets.assign(trace.size(), 0);
  for (const std::size_t i : order) {
    const WorkspaceRequest& r = trace[i];
    const std::int64_t size = aligned_bytes(r.bytes);
    if (size == 0) continue;
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

Placement place_greedy(const WorkspaceTrace& trace) {
  return place_in_order(trace, order_by(trace, is_larger));
}

Placement place_by_orders(const WorkspaceTrace& trace, std::int64_t enough) {
  Placement best = place_greedy(trace);
  for (const auto& before : {lives_longer, takes_more, comes_first}) {
    if (best.bytes <= enough) break;
    Placement other = place_in_order(trace, order_by(trace, before));
    if (other.bytes < best.bytes) best = std::move(other);
  }
  return best;
}

std::int64_t live_bytes_bound(const WorkspaceTrace& trace) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // event, bytes
  for (const WorkspaceRequest& r : trace) {
    changes.emplace_back(r.begin, aligned_bytes(r.bytes));
    changes.emplace_back(r.end, -aligned_bytes(r.bytes));
  }
  std::sort(changes.begin(),
            changes.end());  // at one event a release (negative) comes before a request
  std::int64_t live = 0, most = 0;
  for (const auto& [event, bytes] : changes) most = std::max(most, live += bytes);
  return most;
}

}  // namespace longstride
