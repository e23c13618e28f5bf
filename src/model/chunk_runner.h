// Runs the tasks of a schedule on a device. The same code trains and records shapes (with
// ShapesPages and the shapes device).
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/visits.h"
#include "model/chunk.h"
#include "model/layer.h"
#include "model/neighbours.h"
#include "model/offloaded_activations.h"
#include "model/page_selector.h"
#include "model/parameters.h"
#include "model/retained_activations.h"
#include "model/rope_on_device.h"
#include "ops/loss_head.h"
#include "pages/page_store.h"
#include "schedule/numerics.h"
#include "schedule/step_schedule.h"
#include "tensor/token_rows.h"

namespace longstride {

// One sequence, on the host. targets[t] < 0: token t has no target.
struct SequenceInput {
  std::span<const std::int32_t> tokens, targets;
  std::span<const std::int64_t> document_starts;
  std::int64_t first_position = 0;  // added to every RoPE position
  std::uint64_t rounding = 0;       // key of stochastic rounding: differs for every sequence of
                                    // every step (tensor/stochastic_round.h)
  bool drops = false;               // dropout of adapters is on; its key is `rounding` too
  // Of the targets' losses, of any sign; empty: all 1. One per token.
  std::span<const float> weights = {};
  // log p of the targets before; with it, weights are of clipped ratios (ops/loss_head.h). One per
  // token.
  std::span<const float> earlier = {};
  ops::RatioClip clip = {};
  // If not null: becomes the seconds of every task of the schedule. Tasks are timed in groups as
  // plan/pipeline_simulation.h cuts them; a group's seconds are at its first task.
  std::vector<double>* task_seconds = nullptr;
};

// The model and device of a runner. All references must outlive it.
struct RunnerContext {
  Device& device;
  const ModelConfig& config;
  const NumericsRecord& numerics;
  const ModelParameters& weights;
  const ModelParameters& gradients;
  RopeViews rope;
  const RetainedActivations& retained;
  const PageSummaries& summaries;
  OffloadedActivations* offloaded = nullptr;  // null: none are, or shapes are being recorded
  bool weighted = false;                      // sequences may have weights
  Stage stage = {};                           // whose layers the config's are
  Neighbours* neighbours = nullptr;           // of the stage; null while shapes are being recorded
  HeadExchange* exchange = nullptr;           // likewise, where processes share its heads
};

class ChunkRunner {
 public:
  ChunkRunner(const RunnerContext& context, Workspace& workspace, PageStore& pages)
      : context_(context),
        workspace_(workspace),
        pages_(pages),
        compute_(context.numerics.compute),
        sizes_(context.config, context.numerics.compute, context.stage.heads),
        selector_(context.device, context.numerics.sparse, context.summaries) {}

  // Reserves capacity for sequences of up to this layout's tokens.
  void reserve(const SequenceLayout& layout);
  // Starts the sequence that the next tasks belong to. Gradients are those of `scale` times the
  // sum of the losses.
  void begin_sequence(const SequenceLayout& layout, const SequenceInput& input, float scale);
  void run(const Task& task);
  // After a forward pass to the last layer's output: ends the chunk with the logits of its last
  // token (head_logits).
  void logits(std::int64_t chunk, float* host);
  // After the last task of an episode: its workspace is empty then.
  void end_episode() { release_saved(); }
  // Releases everything taken from the workspace, after an interruption.
  void drop();

  // Sums over the targets of all chunks whose loss head has run since begin_sequence. Waits for the
  // device.
  struct Sums {
    double loss = 0;  // weighted
    std::int64_t targets = 0, correct = 0;
    std::int64_t nonfinite_chunk = -1;  // the sequence's first with a loss that is not finite
  };
  const Sums& sums() {
    settle();
    return sums_;
  }
  // After the losses of a scoring pass: the backward pass that follows has these weights, one per
  // token, and the sums begin again.
  void weigh(std::span<const float> weights);
  // Keeps every token's loss from now on, in memory proportional to the context, and whether it had
  // the largest logit; 0 where there is no target.
  void record_losses() { recording_losses_ = true; }
  std::span<const float> losses() const { return all_losses_; }
  std::span<const char> correct() const { return all_correct_; }
  // The pages that sparse layers selected in the last sequence.
  const SelectedLists& selected() const { return selector_.lists(); }

 private:
  // A chunk in flight: its RoPE tables, residual stream and retained activations.
  struct Chunk {
    std::int64_t index = -1;
    Lease cos_TN, sin_TN;
    Lease local_cos_TN, local_sin_TN;  // of layers that have their own frequencies
    Lease stream_TD;                   // the residual stream; from the head on, its gradient
    std::vector<LayerActivations> layers;
  };
  void run_now(const Task& task);
  // The rows of a chunk that this process works on, but for attention.
  TokenSlice slice_of(std::int64_t chunk) const {
    return context_.stage.heads.slice(layout_.chunk_size(chunk));
  }
  // Of values by token.
  template <class T>
  std::span<const T> of_slice(std::span<const T> all, std::int64_t chunk) const {
    if (all.empty()) return all;
    const TokenSlice slice = slice_of(chunk);
    return all.subspan(static_cast<std::size_t>(layout_.chunk_begin(chunk) + slice.begin),
                       static_cast<std::size_t>(slice.rows));
  }
  Chunk& chunk_of(const Task& task);
  void end_chunk(Chunk& chunk);
  // For a layer, or for the head.
  ChunkContext context_of(const Chunk& chunk, std::int64_t layer = -1) const;
  void make_rope_tables(Chunk& chunk);
  LayerPass pass_of(const ChunkContext& ctx, const Task& task);
  // Place of a layer's input that outlives its episode.
  View input_place(std::int64_t chunk, std::int64_t layer) const;
  // The layer's activations, including those that an earlier episode retained.
  LayerActivations& activations_of(Chunk& chunk, const Task& task) const;
  // Activations on their way: those of a task leave until the next ones do, or the episode ends;
  // those of the next task come while one runs.
  struct Moving {
    std::int64_t layer = -1;
    LayerActivations tensors;
    Fence fence;
  };
  void save(const Task& task, LayerActivations& held);
  void release_saved();
  Moving fetch(const Task& task);
  void use_fetched(Chunk& chunk, const Task& task);
  void embed(const Task& task);
  void send(const Task& task);
  void receive_gradient(const Task& task);
  void send_gradient(const Task& task);
  void layer_forward_task(const Task& task);
  void head(const Task& task);
  void layer_backward_task(const Task& task);
  void embed_backward(const Task& task);
  // What a token's target adds to the loss.
  double objective(std::size_t token, double loss) const;
  // Waits for the losses in flight and adds them up, in the order in which their heads ran.
  void settle();

  RunnerContext context_;
  Workspace& workspace_;
  PageStore& pages_;
  DType compute_;
  ActivationSizes sizes_;
  SequenceLayout layout_;
  SequenceInput input_;
  float scale_ = 1.0f;
  std::vector<Chunk> chunks_;  // in flight: one, or as many as are kept
  Moving saving_, fetching_;
  PageSelector selector_;
  VisitLists visits_;  // of layers that are not sparse
  std::int64_t visits_chunk_ = -1, visits_window_ = -1;
  std::vector<std::int64_t> positions_;
  TokenRows token_rows_;
  // Losses of the last few chunks, still being copied from the device: kUnsettled slots of one
  // chunk each.
  static constexpr std::size_t kUnsettled = 8;
  std::vector<float> losses_;
  std::vector<std::int32_t> correct_;
  std::vector<std::int64_t> unsettled_;  // the chunk in each slot
  Sums sums_;
  bool recording_losses_ = false;
  std::vector<float> all_losses_;
  std::vector<char> all_correct_;
};

}  // namespace longstride
