// Placement as a mixed-integer program, solved by CBC: addresses and the arena's size are
// continuous, a binary for every pair that is alive together says which of the two lies below.
// For traces of tens of tensors; larger ones are cut down first (plan/placement_mip.h).
#pragma once

#include <optional>

#include "plan/placement.h"

namespace longstride {

struct StorageProgramLimits {
  std::int64_t nodes = 0;  // of the search: where it stops does not depend on the machine's speed
  double seconds = 0;      // stops a search that takes longer all the same
};

struct StorageSolution {
  std::optional<Placement> placement;  // below the limit that was asked for, if one was found
  std::int64_t bound = 0;              // proven: no placement has fewer bytes
};

// Pairs of non-empty tensors that are alive together: the binaries of the program.
std::int64_t pairs_alive_together(const WorkspaceTrace& trace);

// Searches for the smallest placement of fewer than `below` bytes. The bound is at most `below`,
// and equals it if there is no such placement. Prints nothing.
StorageSolution solve_storage(const WorkspaceTrace& trace, std::int64_t below,
                              const StorageProgramLimits& limits);

}  // namespace longstride
