// Solved placements, kept in files by the content of their traces: sizes and lifetimes, not names.
// Only those are kept for which a program was solved; greedy ones are computed sooner than read.
//
// A cache never fails: a file that is damaged or not ours counts as absent and is overwritten, and
// in a folder that cannot be written nothing is kept. Processes may share the folder.
#pragma once

#include <filesystem>
#include <optional>

#include "plan/placement_mip.h"

namespace longstride {

class PlacementCache {
 public:
  // Empty: there is no cache.
  explicit PlacementCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // In `placements` of the cache folder (base/cache_folder.h).
  static PlacementCache of_environment();

  // What was found has passed check_placement.
  std::optional<BestPlacement> find(const WorkspaceTrace& trace,
                                    const PlacementLimits& limits = {}) const;
  void keep(const WorkspaceTrace& trace, const PlacementLimits& limits,
            const BestPlacement& best) const;

  // The file of a trace: its name is a hash of the trace, the limits and the format.
  std::filesystem::path file(const WorkspaceTrace& trace, const PlacementLimits& limits = {}) const;

 private:
  std::filesystem::path folder_;
};

// place_best, by way of the cache.
BestPlacement place_best(const WorkspaceTrace& trace, const PlacementCache& cache,
                         const PlacementLimits& limits = {});

}  // namespace longstride
