// StepRunner: forward and backward of whole sequences, with every byte placed before the first one
// runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "train/chunk_runner.h"
#include "train/kernel_cache.h"
#include "train/step_plan.h"

namespace longstride {

struct SequenceResult {
  double loss_sum = 0;  // over counted targets
  std::int64_t counted = 0, correct = 0;
  double forward_s = 0, recompute_s = 0, backward_s = 0;
  MovedBytes moved;  // pages that left the device and came back
  OffloadTimes move_times;
  std::int64_t nonfinite_chunk = -1;  // the first with a loss that is not finite; -1: none
};

// How far a sequence is. On a device that runs behind its caller, what has been asked for.
struct SequenceProgress {
  std::string_view phase;  // "forward", "recompute" or "backward"
  std::int64_t chunk = 0, chunks = 0;
  double done = 0;  // share of the sequence's arithmetic
};
using OnSequenceProgress = std::function<void(const SequenceProgress&)>;

// Thrown out of run() when `should_stop` said so; gradients hold a partial sum, weights are
// untouched.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// What a user may decide about the arithmetic.
struct NumericsChoice {
  std::string compute = "auto";       // f32, bf16, or auto: bf16 where the device computes in it
  std::string determinism = "exact";  // or fast: kernels that do not repeat bit for bit may be used
  std::string kv_gradient_dtype =
      "f32";  // or bf16, rounded stochastically at every chunk's addition
};

// The record for a model on a device: chunk and page as given, the rest as this build chooses.
// Throws Error where bf16 was asked for and the device does not compute in it.
NumericsRecord choose_numerics(Device& device, const ModelConfig& config, std::int64_t chunk_tokens,
                               std::int64_t page_tokens, const NumericsChoice& choice = {});

// Takes what the device's libraries need for steps of up to `tokens`, so that what is free
// afterwards is free for us. Once is enough; more does no harm.
void reserve_libraries(Device& device, const ModelConfig& config, const NumericsRecord& numerics,
                       std::int64_t tokens);

class StepRunner {
 public:
  // Weights and gradients (all F32) outlive the runner. Allocates arena and page pools.
  StepRunner(const ModelConfig& config, const ParameterSet& weights, const ParameterSet& gradients,
             const NumericsRecord& numerics, const StepOptions& options);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;
  ~StepRunner();

  // Forward and backward of one sequence: gradients += scale * d(sum of counted losses). Before
  // every task it asks should_stop and tells on_progress.
  SequenceResult run(const SequenceInput& input, double scale,
                     const std::function<bool()>& should_stop = nullptr,
                     const OnSequenceProgress& on_progress = nullptr);

  // Measures, on a short sequence of noise, what the device can choose among and the record does
  // not name yet, and remembers it for other runs (train/kernel_cache.h). Gives all choices, for
  // the record. Zeroes the gradients. Asks should_stop as run() does; what was chosen until then is
  // forgotten.
  const ops::KernelChoices& choose_kernels(const std::function<bool()>& should_stop = nullptr);

  const StepMemory& memory() const { return plan_.memory; }
  const KvStore& store() const { return *store_; }
  // From now on losses() holds every token's loss of the last sequence.
  void record_losses() { runner_->record_losses(); }
  std::span<const float> losses() const { return runner_->losses(); }

 private:
  ModelConfig config_;
  NumericsRecord numerics_;
  StepOptions options_;
  const ParameterSet& gradient_set_;
  ModelParameters weights_, gradients_;
  Device& device_;
  StepPlan plan_;
  std::unique_ptr<Memory> arena_, frequencies_;
  std::unique_ptr<KvStore> store_;
  Workspace workspace_;
  std::unique_ptr<ChunkRunner> runner_;
};

}  // namespace longstride
