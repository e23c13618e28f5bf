// Recording and placing the episodes of a step. Needs no device: shapes are enough.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "model/config.h"
#include "pages/page_budget.h"
#include "plan/placement.h"
#include "schedule/numerics.h"
#include "schedule/step_schedule.h"

namespace longstride {

using MakeMover = std::function<std::unique_ptr<Mover>(Device&)>;

struct StepOptions {
  std::int64_t max_tokens = 0;  // longest sequence
  std::int64_t keep_chunks =
      1;  // the last chunks' activations that stay instead of being recomputed
  bool rebuild_feed_forward =
      false;  // gate and up are never kept: less workspace, more arithmetic, the same bits
  PageBudget pages = {};
  bool packed = false;             // documents may begin inside chunks
  MakeMover make_mover = nullptr;  // null: the device's own
};

// Bytes that a step takes besides weights, gradients and optimizer; known before anything is
// allocated.
struct StepMemory {
  std::int64_t kv_pages = 0, kv_gradient_pages = 0, workspace = 0;
  std::int64_t host_pages = 0, disk_pages = 0;  // places for pages off the device
  std::int64_t workspace_bound =
      0;  // the most bytes alive at once: what a perfect placement would take
  // On the device.
  std::int64_t total() const { return kv_pages + kv_gradient_pages + workspace; }
};

struct PlacedEpisode {
  WorkspaceTrace trace;
  Placement placement;
};
// By kind and number of chunks. Traces are those of full chunks; a shorter one replays the same
// addresses.
using PlacedEpisodes = std::map<std::pair<EpisodeKind, std::int64_t>, PlacedEpisode>;

struct StepPlan {
  PlacedEpisodes episodes;
  StepMemory memory;
  KvCapacity room;
};

// Bytes of the KV pages alone: every token of every layer has its page where forward turns to
// backward. Known without a schedule, which grows with the context itself. Clamped where 64 bits
// end.
std::int64_t kv_bytes_needed(const ModelConfig& config, const NumericsRecord& numerics,
                             std::int64_t tokens);

// The pages of a model under a record.
KvShape kv_shape(const ModelConfig& config, const NumericsRecord& numerics);

// How a step is going to be cut into tasks and their keys into parts, on a device of that kind.
ScheduleOptions schedule_options(DeviceKind runs_on, const ModelConfig& config,
                                 const NumericsRecord& numerics, std::int64_t keep_chunks);

// Every placement has passed check_placement. `device` is where the step is going to run; nothing
// is run or allocated on it.
StepPlan plan_step(const Device& device, const ModelConfig& config,
                   const std::vector<DType>& weight_dtypes, const NumericsRecord& numerics,
                   const StepOptions& options);

}  // namespace longstride
