// The order of one sequence's forward and backward pass, as plain data: which (phase, chunk, layer)
// runs when, which pages it accesses, which activations it retains, and when pages are created and
// freed. Everything is known before the step starts.
//
// Tasks are grouped into episodes, which begin and end with an empty workspace. Episodes of the
// same shape take the same memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "schedule/layout.h"
#include "schedule/retention.h"
#include "schedule/stage.h"
#include "tensor/key_segments.h"
#include "tensor/selection.h"

namespace longstride {

enum class TaskKind : std::uint8_t {
  kEmbed,          // RoPE tables of the chunk; if `output`, its token embedding, or what the stage
                   // before sends
  kLayerForward,   // one layer, or the part of it that `retains` and `output` need
  kHead,           // final norm, loss and their gradients
  kLayerBackward,  // one layer, from its retained activations; then frees the chunk's pages of this
                   // layer
  kRelease,        // frees the chunk's pages of a layer that has no backward pass
  kEmbedBackward,
  // In place of the head and of the embedding, where another stage has them:
  kSend,             // the last layer's output, to the stage after
  kReceiveGradient,  // its gradient
  kSendGradient,     // that of the first layer's input, to the stage before
};

struct Task {
  TaskKind kind = TaskKind::kEmbed;
  std::int64_t chunk = 0;
  std::int64_t layer = -1;  // -1 if the task is not of a layer
  Retention held;           // activations of this chunk and layer that exist before the task
  Retention retains;        // kLayerForward: those that exist after it, `held` included
  Retention lasting;        // of `retains`: those that this task makes and that outlive the episode
  Retention saved;          // of `retains`: those that leave the device at its end, until the
                            // chunk's backward pass
  bool keys_too = false;    // kLayerForward: with q, makes what the backward pass needs of the keys
  bool output = false;      // kEmbed, kLayerForward: computes the input of the layer above
  bool output_lasts = false;  // the output outlives the episode: the layer above retains it
  bool append = false;        // kLayerForward: stores K and V into new pages (only the first pass
                              // does; a recompute finds them)
  // The last task of the chunk in its episode: kLayerForward, kSend, or kHead, which then computes
  // losses and no gradients.
  bool ends_chunk = false;
  // Saved activations that the next task finds: they come back while this one runs.
  Retention fetches;
  std::int64_t fetches_layer = -1;
  // Attention over selected pages: `visited` are all pages that may be selected. The first task of
  // a (chunk, layer) that computes q selects them, for the later ones too.
  bool sparse = false, selects = false;
  PageRun appended;  // pages that `append` creates
  PageSet visited;   // pages that attention reads, and in kLayerBackward adds gradients to
  std::int64_t most_visited = 0;  // `sparse`: the most pages of `visited` that are accessed
  PageRun freed;                  // pages whose K, V and gradients are freed
  // Segments of the visited keys, in the order of attention. Tasks share their lists.
  std::shared_ptr<const std::vector<KeySegment>> segments;

  // Whether the task computes attention, rather than only keys, values and products of the layer.
  bool attends() const;
};

// What a forward task computes, besides keys and values.
struct LayerWork {
  bool q = false, attention = false, mid = false, gate = false, up = false;
};
LayerWork forward_work(const Task& task);

enum class EpisodeKind : std::uint8_t {
  kForward,    // one chunk forward; without a backward pass, to its losses
  kWavefront,  // two chunks forward, layer by layer in turn: while one attends, the pages that the
               // other selected are fetched
  kKept,       // the last chunks forward, then backward in reverse
  kRecompute,  // one chunk recomputed, then backward
};

struct Episode {
  EpisodeKind kind = EpisodeKind::kForward;
  std::int64_t chunks = 1;
  std::vector<Task> tasks;
};

// Everything about an episode's tasks that determines its workspace, except sizes. Tasks that only
// release pages do not.
struct TaskShape {
  TaskKind kind = TaskKind::kEmbed;
  std::int64_t chunk = 0;  // relative to that of the episode's first task
  std::int64_t layer = -1;
  Retention held, retains, lasting, saved, fetches;
  std::int64_t fetches_layer = -1;
  bool output = false, output_lasts = false, append = false;
  bool sparse = false, selects = false, keys_too = false;
  bool operator==(const TaskShape&) const = default;
  bool operator<(const TaskShape& other) const;  // some order, for maps
};
using EpisodeShape = std::vector<TaskShape>;
EpisodeShape shape_of(const Episode& episode);

struct StepSchedule {
  std::vector<Episode> episodes;
  std::int64_t peak_kv_pages = 0;        // the most at any time, of all layers together
  std::int64_t peak_gradient_pages = 0;  // likewise; a gradient page lives from its first access
  bool packed = false;                   // as in the options
  bool sparse = false;                   // a layer is sparse
};

struct ScheduleOptions {
  std::vector<std::int64_t> windows;  // one per layer, 0 = dense
  std::int64_t keep_chunks = 1;       // the last chunks that are not recomputed, at least 1
  // Retained by a forward pass for the backward pass of the same episode; at least the input.
  Retention within_episode = Retention::all();
  // Retained by the first forward pass of chunks that are recomputed, by chunk, then layer. Chunks
  // beyond the end of the list retain nothing.
  std::vector<Retention> across_episodes = {};
  // Likewise those that leave the device and come back; what is retained already does not count.
  std::vector<Retention> offloaded = {};
  KeyCut forward_cut = {}, backward_cut = {};  // of dense attention
  // The schedule must bound those of all sequences of its length, wherever documents begin.
  bool packed = false;
  SparseLayers sparse = {};  // these ignore their window
  bool wavefront = true;     // with sparse layers: chunks go forward in pairs
  // Layers below have no backward pass and no gradient pages; if it is the number of layers, none
  // has one.
  std::int64_t first_trained_layer = 0;
  // Losses alone, chunk by chunk: no backward pass, no gradient pages, nothing retained. Chunks do
  // not go in pairs.
  bool forward_only = false;
  // The forward pass of every chunk goes to its losses, before any backward pass; then all chunks
  // are recomputed, the last ones too. Chunks do not go in pairs.
  bool scores = false;
  // The layers are those of a stage. One that receives retains the first layer's input of every
  // chunk that is recomputed, on the device or off it.
  Stage stage = {};

  // Whether anything here or in a stage below is trained; the head's pass is one.
  bool has_backward() const { return !stage.sends || first_trained_layer < std::ssize(windows); }
  // The same sequence without a backward pass.
  ScheduleOptions without_backward() const;
  // With losses first; `chunks` of the longest sequence. Its last ones retain nothing.
  ScheduleOptions scoring(std::int64_t chunks) const;

  Retention retained(std::int64_t chunk, std::int64_t layer) const;
  Retention saved(std::int64_t chunk, std::int64_t layer) const;
  bool operator==(const ScheduleOptions&) const = default;
};

StepSchedule make_step_schedule(const SequenceLayout& layout, const ScheduleOptions& options);

// The forward pass of one chunk, with those before it in their pages: to the last layer's output if
// `options.forward_only` is set, else to its keys and values. No task releases a page.
Episode forward_episode(const SequenceLayout& layout, const ScheduleOptions& options,
                        std::int64_t chunk);

// Episodes that shorter sequences have and one of this layout may lack: chunks that go forward in
// pairs here may be the last of their sequence that do, and go alone.
std::vector<Episode> episodes_of_shorter(const SequenceLayout& layout,
                                         const ScheduleOptions& options);

}  // namespace longstride
