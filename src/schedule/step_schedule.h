// The order of one sequence's forward and backward pass, as plain data: which (phase, chunk, layer)
// runs when, which pages it touches, and when pages come and go. Everything is known before the
// step starts.
//
// Tasks come in episodes: a stretch that begins and ends with an empty workspace. Episodes of the
// same kind and the same number of chunks take the same memory.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/layout.h"
#include "tensor/key_parts.h"

namespace longstride {

enum class TaskKind : std::uint8_t {
  kEmbed,          // token embedding and RoPE tables of the chunk
  kLayerForward,   // one layer; `keep` says whether its activations stay for the backward pass
  kHead,           // final norm, loss and their gradients
  kLayerBackward,  // one layer, from its kept activations; afterwards the chunk's pages of this
                   // layer are free
  kEmbedBackward,
};

struct Task {
  TaskKind kind = TaskKind::kEmbed;
  std::int64_t chunk = 0;
  std::int64_t layer = -1;    // -1 where the task is not a layer's
  std::int64_t position = 0;  // in the step
  bool keep = false;          // kLayerForward: activations stay until the layer's backward
  bool only_kv = false;       // kLayerForward: nothing above the keys and values is needed
  bool append = false;        // kLayerForward: K and V are stored into new pages (the first time;
                              // recompute finds them)
  PageRun appended;           // pages that `append` creates
  PageSet visited;            // pages that attention reads, and in kLayerBackward adds gradients to
  std::vector<KeyPart> parts;  // of the visited keys, in the order in which attention takes them;
                               // empty where it is not asked
  PageRun freed;               // kLayerBackward: pages whose K, V and gradients end here
};

enum class EpisodeKind : std::uint8_t {
  kForward,  // one chunk forward, nothing kept
  kKept,     // the last chunks forward, kept, then backward in reverse
  kReplay,   // one chunk recomputed, then backward
};

struct Episode {
  EpisodeKind kind = EpisodeKind::kForward;
  std::int64_t chunks = 1;
  std::vector<Task> tasks;
};

struct StepSchedule {
  std::vector<Episode> episodes;
  std::int64_t peak_kv_pages = 0;        // over all layers, at the same time
  std::int64_t peak_gradient_pages = 0;  // likewise; a gradient page lives from its first touch
  bool packed = false;                   // as in the options
};

struct ScheduleOptions {
  std::vector<std::int64_t> windows;  // one per layer, 0 = dense
  std::int64_t keep_chunks = 1;  // how many of the last chunks keep their activations, at least 1
  KeyCut forward_cut = {}, backward_cut = {};  // of what a whole chunk sees from one key on
  // The schedule stands for those of all sequences of its length, wherever documents begin.
  bool packed = false;
};

StepSchedule make_step_schedule(const SequenceLayout& layout, const ScheduleOptions& options);

}  // namespace longstride
