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

// Places the largest first, each at the lowest address free during its whole lifetime.
Placement place_greedy(const WorkspaceTrace& trace);

// The most bytes alive at one time: a lower bound for every placement.
std::int64_t live_bytes_bound(const WorkspaceTrace& trace);

// Verifies a placement by replaying the trace's events on a map of occupied addresses; it shares no
// code with the placer. Returns "" or what is wrong.
std::string check_placement(const WorkspaceTrace& trace, const Placement& placement);

}  // namespace longstride
