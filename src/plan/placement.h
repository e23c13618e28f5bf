// Placement: addresses for the tensors of a recorded trace, chosen before the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/workspace.h"

namespace longstride {

struct Placement {
  std::vector<std::int64_t> offsets;  // one per request, multiples of kPlacementAlignment
  std::int64_t bytes = 0;             // arena size
  bool operator==(const Placement&) const = default;
};

inline constexpr std::int64_t kPlacementAlignment = 256;
// The bytes that a tensor takes of the arena.
constexpr std::int64_t aligned_bytes(std::int64_t bytes) {
  return (bytes + kPlacementAlignment - 1) / kPlacementAlignment * kPlacementAlignment;
}

// Places in this order, each at the lowest address free during its whole lifetime. `order` names
// every request once.
Placement place_in_order(const WorkspaceTrace& trace, const std::vector<std::size_t>& order);
// The largest first.
Placement place_greedy(const WorkspaceTrace& trace);
// The best of several orders: the largest, the longest-lived, the largest product of both, the
// earliest first. Later ones are not tried once the arena has `enough` bytes or fewer.
Placement place_by_orders(const WorkspaceTrace& trace, std::int64_t enough);

// The most bytes alive at one time: a lower bound for every placement.
std::int64_t live_bytes_bound(const WorkspaceTrace& trace);

// Verifies a placement by replaying the trace's events on a map of occupied addresses; it shares no
// code with the placer. Returns "" or what is wrong.
std::string check_placement(const WorkspaceTrace& trace, const Placement& placement);

}  // namespace longstride
