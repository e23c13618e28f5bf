// StepPlan: everything about a step that is decided before it runs. It is made once; a dry run
// prints it, StepRunner executes it, and it can be stored as JSON (plan/step_plan_json.h).
// Planning runs on shapes alone. Plain data.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "model/config.h"
#include "model/offloaded_activations.h"
#include "model/parameter_specs.h"
#include "model/retained_activations.h"
#include "model/trainable.h"
#include "pages/page_budget.h"
#include "plan/placement.h"
#include "schedule/numerics.h"
#include "schedule/step_schedule.h"

namespace longstride {

struct StepOptions {
  std::int64_t max_tokens = 0;  // longest sequence
  std::int64_t keep_chunks = 1;
  Retention within_episode = Retention::all();  // keep_chunks and these two as in ScheduleOptions
  std::vector<Retention> across_episodes = {};
  std::vector<Retention> offloaded = {};  // as in ScheduleOptions
  ActivationBudget activations = {};      // for those
  PageBudget pages = {};
  bool packed = false;    // documents may begin inside chunks
  bool wavefront = true;  // as in ScheduleOptions
  // Sequences are only evaluated, or also: the plan then has the episodes of both.
  bool forward_only = false, evaluates = false;
  bool scores = false;    // likewise: sequences may be scored before their backward pass
  bool weighted = false;  // targets may have weights (SequenceInput)
  // Config, parameters and record are those of a stage (model/stage_parts.h).
  Stage stage = {};
  // Nothing looks for a better placement of the workspace, which may then be larger: for searches.
  bool quick = false;
};

// The retention within an episode where gate and up are recomputed: less workspace, more
// arithmetic, the same bits.
inline Retention within_episode(bool rebuild_feed_forward) {
  return rebuild_feed_forward ? Retention::all() - Retention{Retained::kGate, Retained::kUp}
                              : Retention::all();
}

// Bytes that a step takes besides weights, gradients and optimizer; known before anything is
// allocated.
struct StepMemory {
  std::int64_t kv_pages = 0, kv_gradient_pages = 0, workspace = 0;
  std::int64_t retained = 0;                    // activations that outlive their episode
  std::int64_t summaries = 0;                   // of pages, in sparse layers
  std::int64_t wide_pages = 0;                  // copies of coded pages, of one segment
  std::int64_t rope = 0;                        // rotary frequencies
  std::int64_t host_pages = 0, disk_pages = 0;  // capacity for offloaded pages
  std::int64_t host_activations = 0, disk_activations = 0;  // likewise
  // Proven: no placement of the workspace has fewer bytes. Mostly the bytes alive at once.
  std::int64_t workspace_bound = 0;

  // On the device.
  std::int64_t total() const {
    return kv_pages + kv_gradient_pages + workspace + retained + summaries + wide_pages + rope;
  }
  std::int64_t host() const { return host_pages + host_activations; }
  std::int64_t disk() const { return disk_pages + disk_activations; }
  bool operator==(const StepMemory&) const = default;
};

struct PlacedEpisode {
  WorkspaceTrace trace;
  Placement placement;
  bool operator==(const PlacedEpisode&) const = default;
};
// Traces are those of full chunks; a shorter one replays the same addresses.
using PlacedEpisodes = std::map<EpisodeShape, PlacedEpisode>;

struct StepPlan {
  // If chunk_tokens exceeds max_tokens, the whole context is one chunk.
  std::int64_t max_tokens = 0, chunk_tokens = 0, page_tokens = 0;
  ScheduleOptions schedule;  // of every sequence
  PlacedEpisodes episodes;
  KvCapacity pages;
  WideCapacity wide_pages;
  ActivationCapacity activations;
  StepMemory memory;
  TrainedParts trained;
  bool weighted = false;

  SequenceLayout layout() const { return {max_tokens, chunk_tokens, page_tokens, {0}}; }
  RetainedLayout retained(const ModelConfig& config, DType compute) const;
  // What leaves the device, by chunk, then layer; empty: nothing.
  std::vector<Retention> saved() const;
  std::int64_t longest_chunk() const { return std::min(max_tokens, chunk_tokens); }
  // Fails if no episode of that shape was planned.
  const PlacedEpisode& placed(const Episode& episode) const;
  bool operator==(const StepPlan&) const = default;
};

// Records and places the episodes of a step once; plan() then distributes pages, as often as
// needed. Immutable after construction.
class StepPlanner {
 public:
  // `runs_on` is the device of the step; nothing is run or allocated on it. Every placement has
  // passed check_placement.
  StepPlanner(const Device& runs_on, const ModelConfig& config,
              const std::vector<ParameterSpec>& parameters, const NumericsRecord& numerics,
              const StepOptions& options);

  // Throws Error if the budget is too small.
  StepPlan plan(const PageBudget& pages) const;
  // Bytes of pages on the device: of the largest working set, and enough to overlap copies with
  // compute.
  std::int64_t least_page_bytes() const { return least_device_bytes(layout_, schedule_, shape_); }
  std::int64_t streaming_page_bytes() const {
    return streaming_device_bytes(layout_, schedule_, shape_);
  }

 private:
  void place_episodes(const Device& runs_on, const ModelConfig& config,
                      const std::vector<ParameterSpec>& parameters, const NumericsRecord& numerics,
                      const StepOptions& options);

  StepPlan without_pages_;
  SequenceLayout layout_;
  StepSchedule schedule_;
  KvShape shape_;
};

inline StepPlan plan_step(const Device& runs_on, const ModelConfig& config,
                          const std::vector<ParameterSpec>& parameters,
                          const NumericsRecord& numerics, const StepOptions& options) {
  return StepPlanner(runs_on, config, parameters, numerics, options).plan(options.pages);
}

// Bytes of the KV pages alone, at the end of the forward pass, when every token of every layer has
// its page. Needs no schedule, which itself grows with the context. Saturates instead of
// overflowing.
std::int64_t kv_bytes_needed(const ModelConfig& config, const NumericsRecord& numerics,
                             std::int64_t tokens, const HeadShare& heads = {});

// How a step is cut into tasks, and their keys into segments, if every layer is trained.
ScheduleOptions schedule_options(const Device& runs_on, const ModelConfig& config,
                                 const NumericsRecord& numerics, const StepOptions& options);

// Shape of a model's pages under a numerics record, or of those that a process has which shares
// heads.
KvShape kv_shape(const ModelConfig& config, const NumericsRecord& numerics,
                 const HeadShare& heads = {});

}  // namespace longstride
