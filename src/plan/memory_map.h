// The memory of one step over time, as data for a picture: which bytes of the device hold what and
// when, and how much is in host memory and on disk. It comes from the plan alone; nothing is run.
//
// What is too small to see is merged, so that the map of any context stays small. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "plan/step_plan.h"
#include "tensor/dtype.h"

namespace longstride {

struct NamedBytes {
  std::string name;
  std::int64_t bytes = 0;
};

struct MemoryMapInput {
  std::string title;  // of the picture, such as "qwen2.5-7b, 128K tokens"
  ModelConfig config;
  DType compute = DType::kF32;            // of activations, as in the plan's numerics record
  std::vector<NamedBytes> device;         // there all the time: weights, gradients, optimizer
  std::vector<NamedBytes> host, disk;     // likewise; the plan's pages and activations are added
  std::int64_t available = 0;             // on the device, for everything; 0: not known
  std::vector<double> task_seconds = {};  // of all tasks in order; empty: every task counts 1
};

// What a part of the picture shows; decides its colour.
enum class MapPart : std::uint8_t {
  kFixed,  // a tenant that the caller names
  kKvPages,
  kKvGradients,
  kSummaries,
  kDiskBuffers,
  kLeaving,   // activations in the workspace, while they are copied off the device
  kLanding,   // those that come back, until their backward pass has used them
  kRetained,  // the tenants that hold the tensors below
  kWorkspace,
  kInput,  // tensors: the kinds of Retained, in its order
  kQ,
  kAttention,
  kMid,
  kGate,
  kUp,
  kGradient,  // tensors of the workspace alone
  kScratch,
  kOther,
};
inline constexpr int kMapParts = static_cast<int>(MapPart::kOther) + 1;

// A block of device memory. Tenants lie one above the other, from address 0, in the order of the
// map's list.
struct MapTenant {
  std::string name;
  MapPart part = MapPart::kFixed;
  std::int64_t address = 0, bytes = 0;
  std::int64_t wanted = 0;  // pages: bytes of the most that exist at once, wherever they are
};

// Something at [address, address + bytes) during [begin, end).
struct MapRect {
  MapPart part = MapPart::kOther;
  std::int64_t address = 0, bytes = 0;
  double begin = 0, end = 0;
  std::string label;
  bool fetched = false;  // a tensor of the workspace that comes from host memory or disk
};

// `bytes` from `begin` to the next level, or to the end of the step.
struct MapLevel {
  double begin = 0;
  std::int64_t bytes = 0;
};

// A part of a tenant whose size changes: from the tenant's first address up to the level.
struct MapFill {
  MapPart part = MapPart::kKvPages;
  std::int64_t address = 0;
  std::vector<MapLevel> levels;  // begin ascends, from 0
};

// Bytes over time, without addresses.
struct MapLane {
  std::string name;
  MapPart part = MapPart::kFixed;
  std::int64_t bytes = 0;  // reserved; the most at once of what is on its way
  std::vector<MapLevel> levels;
};

enum class MapPhaseKind : std::uint8_t { kForward, kKept, kBackward };
struct MapPhase {
  MapPhaseKind kind = MapPhaseKind::kForward;
  double begin = 0, end = 0;
  std::int64_t chunks = 0;
};

// The workspace of one episode: its tensors where they are placed, over its own time, from 0 to 1.
struct MapCloseUp {
  std::string name;
  std::int64_t bytes = 0;       // of the placement
  std::int64_t live_bytes = 0;  // the most alive at once
  std::vector<MapRect> rects;
};

struct MemoryMap {
  std::string title;
  std::int64_t tokens = 0, chunk_tokens = 0, chunks = 0, layers = 0;
  double end = 0;           // of the step, which begins at 0
  bool in_seconds = false;  // otherwise time is counted in tasks
  std::vector<MapPhase> phases;
  std::vector<double> episodes;  // begin of each
  std::vector<MapTenant> tenants;
  std::int64_t available = 0;  // on the device; 0: not known
  std::int64_t shown = 0;      // the highest address of the picture; may be less than `available`
  // Disjoint in (address, time), inside their tenants. In the workspace, fills are the highest
  // address in use of episodes that are too narrow to show their tensors.
  std::vector<MapFill> fills;
  std::vector<MapRect> rects;
  // Activations on their way, as part of the workspace: leaving in forward passes, landing in
  // backward passes. Empty if none leaves the device.
  std::vector<MapLane> moving;
  std::vector<MapLane> host, disk;    // from the bottom; empty if nothing is there
  std::vector<MapCloseUp> close_ups;  // one of each kind of episode

  std::int64_t used() const {
    return tenants.empty() ? 0 : tenants.back().address + tenants.back().bytes;
  }
};

// Pages: those alive, up to what the device holds; the others are in host memory and, when that is
// full, on disk. Which pages these are is decided as they are accessed, and not shown.
// Swapped activations: in host memory or on disk from the end of the task that saves them to the
// end of the one that fetches them.
// Retained activations: where they lie; tensors of a chunk that are too small to see are sorted by
// kind and merged.
// Workspace: events of an episode's trace are spread evenly over its forward pass, and over its
// backward pass; tensors are rounded to a grid as fine as a pixel.
MemoryMap make_memory_map(const StepPlan& plan, const MemoryMapInput& input);

}  // namespace longstride
