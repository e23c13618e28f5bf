// The ways to use the ranks of a run: stages, data ranks, and ranks that share heads.
#pragma once

#include <cstdint>
#include <vector>

#include "train/run_plan.h"

namespace longstride {

struct RankCut {
  std::int64_t pipeline = 1, data = 1, heads = 1;
  std::int64_t ranks() const { return pipeline * data * heads; }
  bool operator==(const RankCut&) const = default;
};

// All that take at most so many ranks and may be the fastest. Stages have at least a layer, data
// ranks divide parallel.data if that is set, else training.batch; heads divide the model's KV
// heads, where they can be shared at all. parallel.pipeline and parallel.heads hold if they are
// more than
// 1. The first has the smallest stages, and heads as they are set. Throws Error if there is none,
// or if there are several ranks and work for one.
//
// `shapes` is of plan_shapes.
std::vector<RankCut> rank_cuts(const RunPlan& shapes, std::int64_t ranks);

}  // namespace longstride
