#include "train/rank_cuts.h"

#include <algorithm>

#include "base/error.h"
#include "train/run_memory.h"

namespace longstride {
namespace {

// As `train` would refuse it.
void check_cut(const RunPlan& shapes, std::int64_t pipeline, std::int64_t heads) {
  RunPlan probe;
  probe.model.config = shapes.model.config;
  probe.numerics = shapes.numerics;
  probe.place = {.stages = pipeline, .shards = heads, .heads = heads};
  check_place(probe);
}

bool can_share_heads(const RunPlan& shapes, std::int64_t heads) {
  try {
    check_cut(shapes, 1, heads);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void check_settings(const RunPlan& shapes, std::int64_t ranks) {
  const std::int64_t pipeline = shapes.config.parallel.pipeline,
                     heads = shapes.config.parallel.heads, each = pipeline * heads;
  check_cut(shapes, pipeline, heads);
  if (each > ranks)
    throw Error(fmt::format("parallel.pipeline = {} and parallel.heads = {} take {} ranks, and the "
                            "plan is for {}",
                            pipeline, heads, each, ranks),
                fmt::format("plan for at least {} ranks, or leave the settings out", each));
}

[[noreturn]] void refuse_ranks(const RunPlan& shapes, std::int64_t ranks) {
  const std::int64_t data = shapes.config.parallel.data;
  const std::string batch = data > 1
                                ? fmt::format("parallel.data = {}", data)
                                : fmt::format("training.batch = {}", shapes.config.training.batch);
  throw Error(fmt::format("{} ranks: the model has one layer, no number of ranks up to {} divides "
                          "{}, and none can share the {} KV heads",
                          ranks, ranks, batch, shapes.model.config.kv_heads),
              fmt::format("choose a model with more layers, or another {}",
                          data > 1 ? "parallel.data" : "training.batch"));
}

}  // namespace

std::vector<RankCut> rank_cuts(const RunPlan& shapes, std::int64_t ranks) {
  const ParallelConfig& set = shapes.config.parallel;
  const std::int64_t layers = shapes.model.config.layers,
                     groups = set.data > 1 ? set.data : shapes.config.training.batch;
  check_settings(shapes, ranks);
  std::vector<RankCut> cuts;
  for (std::int64_t heads = 1; heads <= std::min(ranks, shapes.model.config.kv_heads); ++heads) {
    if (set.heads > 1 ? heads != set.heads : !can_share_heads(shapes, heads)) continue;
    for (std::int64_t data = 1; data <= std::min(ranks / heads, groups); ++data) {
      const std::int64_t longest = std::min(ranks / heads / data, layers);
      if (groups % data != 0 || longest < set.pipeline) continue;
      if (set.pipeline > 1) {
        cuts.push_back({set.pipeline, data, heads});
        continue;
      }
      // The longest pipeline, and the shortest whose slowest stage has as few layers.
      const std::int64_t most_layers = (layers + longest - 1) / longest,
                         shortest = (layers + most_layers - 1) / most_layers;
      cuts.push_back({longest, data, heads});
      if (shortest < longest) cuts.push_back({shortest, data, heads});
    }
  }
  LS_CHECK(!cuts.empty(), "no cut of {} ranks", ranks);
  const auto is_one = [](const RankCut& cut) { return cut.ranks() == 1; };
  if (ranks > 1 && std::ranges::all_of(cuts, is_one)) refuse_ranks(shapes, ranks);
  return cuts;
}

}  // namespace longstride
