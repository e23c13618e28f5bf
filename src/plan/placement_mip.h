// The best placement that can be had in reasonable time, with a proof of how good it is.
//
// Greedy orders come first, and reach the bound on nearly every trace of a step. Where they do
// not, a mixed-integer program searches on: on the trace as it is if that is small, else on two
// levels. There the tensors inside one layer are placed on their own, and become a single block
// for every layer that repeats it; then the step is placed, made of blocks and of what outlives
// them.
#pragma once

#include <string_view>

#include "plan/placement.h"

namespace longstride {

struct PlacementLimits {
  double good_enough = 0.001;  // above the bound; no program is solved for less
  std::int64_t pairs = 1000;   // alive together: larger programs are not tried
  // Of every program: a search stops after nodes * kPairsPerNode / pairs nodes, which is the same
  // on any machine. `seconds`, of all programs together, is for machines that are much slower.
  std::int64_t nodes = 1000;
  double seconds = 15;

  static constexpr std::int64_t kPairsPerNode = 100;
};

enum class PlacementMethod : std::uint8_t { kGreedy, kProgram, kTwoLevels };
std::string_view name_of(PlacementMethod method);

struct BestPlacement {
  Placement placement;
  std::int64_t bound = 0;  // proven: no placement has fewer bytes
  PlacementMethod method = PlacementMethod::kGreedy;
  bool searched = false;  // a program was solved, whether or not it found anything better
  double seconds = 0;

  bool optimal() const { return placement.bytes <= bound; }
  // How far above the best one it may be at most, as a share of that.
  double gap() const {
    return bound > 0 ? static_cast<double>(placement.bytes) / static_cast<double>(bound) - 1 : 0;
  }
};

// Never worse than place_greedy. The same trace gives the same placement, unless the time limit
// strikes.
BestPlacement place_best(const WorkspaceTrace& trace, const PlacementLimits& limits = {});

}  // namespace longstride
