// What a run on several ranks would need and how long its step would take, before anything runs and
// without a launcher: how ranks are cut into stages, data groups and those that share heads, what
// each stage has, and the simulated step. Made by the same code that plans a run.
//
// Every rank has a device of its own, like the one that is planned for; all are on one host and
// share its memory evenly. A device that is host memory is shared too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/machine_rates.h"
#include "plan/pipeline_simulation.h"
#include "plan/step_cost.h"
#include "train/rank_cuts.h"
#include "train/run_plan.h"

namespace longstride {

// Between two ranks. Without more knowledge: messages go through host memory, as `bench link`
// measured them there.
constexpr PipelineLink kHostLink{.bytes_per_s = 5e9, .latency = 20e-6, .receive_buffers = 2};

struct RankChoice {
  std::int64_t ranks = 1;
  PipelineLink link = kHostLink;
};

struct StageOutlook {
  std::int64_t first_layer = 0, layers = 0;
  RunNeeds needs;                                      // of a rank
  std::int64_t trained_bytes = 0, gradient_bytes = 0;  // of its weights
  StepCost step;  // of one sequence, with the exchange of heads, without waiting for other stages
  double update_seconds = 0;
  std::vector<PipelineTask> tasks;  // of one sequence
};

// How else the ranks could be used.
struct OtherCut {
  RankCut cut;
  double seconds = 0;     // of a training step
  double idle_share = 0;  // of its pipeline
};

struct PipelineOutlook {
  std::int64_t ranks = 1;   // that there are
  RankCut cut;              // takes at most that many
  std::int64_t groups = 1;  // parallel.data
  std::int64_t context = 0, chunk = 0, batch = 1;
  bool shorter_chunk = false;  // than a run takes unless training.chunk is set
  std::vector<StageOutlook> stages;
  PipelineRun run;  // of the sequences of one data group
  // Between the ranks that have the same stage, of the stage with most: gradients, then weights.
  std::int64_t exchange_bytes = 0;  // that a rank sends
  double exchange_seconds = 0;
  double update_seconds = 0;     // of the slowest stage
  std::vector<OtherCut> others;  // that fit and were not chosen, the fastest first
  std::string problem, hint;     // why no cut fits; empty if one does

  bool fits() const { return problem.empty(); }
  std::int64_t ranks_used() const { return cut.ranks(); }
  // Of a training step.
  double seconds() const { return run.seconds + exchange_seconds + update_seconds; }
  double tokens_per_s() const;
};

// `shapes` is of plan_shapes, or has data too. Of all cuts that fit, that with the least predicted
// time, and of those within half a percent of it the one with the fewest ranks. Throws Error if the
// ranks cannot be used at all, or not as the settings say.
PipelineOutlook plan_ranks(const RunPlan& shapes, Device& device, const MachineRates& rates,
                           const RankChoice& choice);
// The same; where `config`, of which the shapes were made, does not set training.chunk, also with
// shorter chunks, which fill a pipeline sooner, as long as they are faster.
PipelineOutlook plan_ranks_and_chunk(const TrainConfig& config, const RunPlan& shapes,
                                     Device& device, const MachineRates& rates,
                                     const RankChoice& choice);

}  // namespace longstride
