// In place of the programs that CBC solves (plan/storage_program.cc, plan/retention_program.cc):
// Debian's CBC cannot be linked into a module. Greedy placement and choices by worth stand alone
// then; what is computed does not depend on either.
#include <limits>

#include "plan/retention_program.h"
#include "plan/storage_program.h"

namespace longstride {

// Programs of so many pairs are not tried.
std::int64_t pairs_alive_together(const WorkspaceTrace& /*trace*/) {
  return std::numeric_limits<std::int64_t>::max();
}

StorageSolution solve_storage(const WorkspaceTrace& trace, std::int64_t /*below*/,
                              const StorageProgramLimits& /*limits*/) {
  return {std::nullopt, live_bytes_bound(trace)};
}

std::optional<RetentionSolution> solve_retention(const std::vector<PlaceKind>& /*kinds*/,
                                                 const RetentionRoom& /*room*/, double /*known*/) {
  return std::nullopt;
}

}  // namespace longstride
