// StepRunner: forward and backward of whole sequences, with every byte placed before the first one
// runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "model/chunk_runner.h"
#include "pages/kv_store.h"
#include "plan/step_plan.h"
#include "train/kernel_cache.h"
#include "train/step_statistics.h"

namespace longstride {

class CodedPages;

struct SequenceResult : StepStatistics {
  std::int64_t nonfinite_chunk = -1;  // the first with a loss that is not finite; -1: none
};

// Progress in a sequence. On an asynchronous device it counts issued work.
struct SequenceProgress {
  std::string_view phase;  // "forward", "recompute" or "backward"
  std::int64_t chunk = 0, chunks = 0;
  std::int64_t episode = 0;  // of the schedule: the same in all stages of a pipeline
  double done = 0;           // share of the sequence's arithmetic
};
using OnSequenceProgress = std::function<void(const SequenceProgress&)>;

// Thrown by run() when `should_stop` returned true; gradients hold a partial sum, weights are
// untouched.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// The user's choices about the arithmetic, in the words of settings and options.
struct NumericsChoice {
  std::string compute = "auto";       // f32, bf16, or auto: bf16 if the device computes in it
  std::string determinism = "exact";  // or fast
  // f32, or bf16, fp8, int8: rounded stochastically at every chunk's addition.
  std::string kv_gradient_dtype = "f32";
  SparseLayers sparse = {};
  std::string quantize = {};  // as in the record
  bool tied_apart = false;    // as in the record: sums_head_apart of the parameters
  std::int64_t data_groups = 1;
  std::string kv_dtype = "auto";  // of K/V pages: fp8, int8, or auto: that of compute
  // The same by layer, in place of those (train/layer_pattern.h).
  std::vector<std::string> layer_kv_dtypes = {}, layer_kv_gradient_dtypes = {};
  std::int64_t hot_pages = 64;  // pages/hot_pages.h
};

// The type of activations for `compute`. Throws Error as choose_numerics does.
DType compute_type(const Device& device, const std::string& compute);

// The record for a model on a device: chunk and page as given, the rest as this build chooses.
// Throws Error for an unknown word, and if bf16 is requested but the device does not compute in it.
NumericsRecord choose_numerics(Device& device, const ModelConfig& config, std::int64_t chunk_tokens,
                               std::int64_t page_tokens, const NumericsChoice& choice = {});

// Allocates the memory that the device's libraries need for steps of up to `tokens`, so that all
// memory free afterwards is ours to use. Idempotent.
void reserve_libraries(Device& device, const ModelConfig& config, const NumericsRecord& numerics,
                       std::int64_t tokens, const HeadShare& heads = {});
// How much that is, where it is much: a GPU's attention in `exact` mode. For plans of a GPU that is
// not there, or of a part of one.
std::int64_t library_bytes(Device& device, const ModelConfig& config,
                           const NumericsRecord& numerics, std::int64_t tokens,
                           const HeadShare& heads = {});

using MakeMover = std::function<std::unique_ptr<Mover>(Device&)>;

// Not thread-safe: the thread that runs the step owns it.
class StepRunner {
 public:
  // Allocates the plan's memory. Weights and gradients (F32; absent ones are not computed) must
  // outlive the runner. Copies go through the mover from `make_mover`; null: the device's own.
  // `neighbours` and `exchange` outlive it too, where the plan is that of a stage, and where
  // processes share its heads.
  StepRunner(const ModelConfig& config, const ParameterSet& weights, const ParameterSet& gradients,
             const NumericsRecord& numerics, StepPlan plan, const MakeMover& make_mover = nullptr,
             Neighbours* neighbours = nullptr, HeadExchange* exchange = nullptr);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;
  ~StepRunner();

  // Forward and backward of one sequence: gradients += scale * d(sum of the targets' losses).
  // Before every task it polls should_stop and calls on_progress.
  SequenceResult run(const SequenceInput& input, double scale,
                     const std::function<bool()>& should_stop = nullptr,
                     const OnSequenceProgress& on_progress = nullptr);

  // The losses of one sequence alone, for which the plan has the episodes (StepOptions::evaluates,
  // forward_only). The same bits as those of run().
  SequenceResult evaluate(const SequenceInput& input,
                          const std::function<bool()>& should_stop = nullptr,
                          const OnSequenceProgress& on_progress = nullptr);

  // The losses of one sequence first, then its backward pass with the weights that `weights_of`
  // returns for them, one per token, which stay valid until it is called again; the forward pass is
  // not repeated, but for what is recomputed anyway. For plans with StepOptions::scores. The
  // result's loss is weighted.
  using WeightsOf = std::function<std::span<const float>(std::span<const float> losses)>;
  SequenceResult run_scored(const SequenceInput& input, const WeightsOf& weights_of, double scale,
                            const std::function<bool()>& should_stop = nullptr,
                            const OnSequenceProgress& on_progress = nullptr);

  // Measures, on a short sequence of noise, the kernels that the device can choose among and the
  // record does not name yet, and caches the choices for other runs (train/kernel_cache.h). Returns
  // all choices, for the record. Zeroes the gradients. Polls should_stop as run() does; if stopped,
  // the new choices are discarded.
  const ops::KernelChoices& choose_kernels(const std::function<bool()>& should_stop = nullptr);

  // Uses these from now on.
  void use_kernels(const ops::KernelChoices& choices);

  const StepPlan& plan() const { return plan_; }
  const StepMemory& memory() const { return plan_.memory; }
  const KvStore& store() const { return *store_; }
  // From now on losses() holds every token's loss of the last sequence.
  void record_losses() { runner_->record_losses(); }
  std::span<const float> losses() const { return runner_->losses(); }
  // Likewise 1 where the target had the largest logit.
  std::span<const char> correct() const { return runner_->correct(); }
  // The pages that sparse layers selected in the last sequence.
  const SelectedLists& selected() const { return runner_->selected(); }

 private:
  SequenceResult run_tasks(const SequenceInput& input, double scale, const ScheduleOptions& options,
                           const std::function<bool()>& should_stop,
                           const OnSequenceProgress& on_progress,
                           const WeightsOf& weights_of = nullptr);
  MovedBytes moved() const;
  OffloadTimes take_times();

  ModelConfig config_;
  NumericsRecord numerics_;
  const ParameterSet& gradient_set_;
  ModelParameters weights_, gradients_;
  Device& device_;
  StepPlan plan_;
  Neighbours* neighbours_;
  std::unique_ptr<Memory> arena_;
  std::unique_ptr<RopeOnDevice> rope_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<CodedPages> coded_;  // null if no page is
  RetainedActivations retained_;
  std::unique_ptr<OffloadedActivations> offloaded_;  // null if none are
  PageSummaries summaries_;
  Workspace workspace_;
  std::unique_ptr<ChunkRunner> runner_;
};

}  // namespace longstride
