// Engine: a model on a device: weights, gradients, the planned step, the optimizer. It loads a
// model, plans, steps, updates, and provides the tensors that a save writes. Used by Trainer,
// `gradients`, `bench step` and the demo.
//
// Not thread-safe: one thread owns it. The device outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/adapter_directory.h"
#include "model/fold_adapters.h"
#include "model/tied_head.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/step.h"

namespace longstride {

class Engine {
 public:
  // Allocates weights, and gradients of the trainable ones. The weights are zero until filled.
  Engine(Device& device, const ModelConfig& config, const std::vector<ParameterSpec>& parameters);

  // Fill the weights: from a directory, or at random (`repeatedly`: many times faster, for
  // benchmarks).
  void load(const ModelDirectory& directory) { directory.load(weights_); }
  void initialize(std::uint64_t seed) { initialize_random(weights_, config_, seed); }
  void initialize_repeatedly(std::uint64_t seed) { initialize_repeating(weights_, config_, seed); }

  // Adapters, and what is trained beside them: from a directory, or new ones, which change nothing.
  // Call one of them after the weights are filled, if the parameters have adapters.
  void load_adapters(const AdapterDirectory& directory) {
    longstride::load_adapters(directory, weights_);
  }
  void start_adapters(std::uint64_t seed);

  // Plans steps of this model; needs no memory of the device.
  StepPlanner planner(const NumericsRecord& numerics, const StepOptions& options) const;
  // Allocates the plan's memory. Call once. As StepRunner's constructor.
  void prepare_step(const NumericsRecord& numerics, StepPlan plan, Neighbours* neighbours = nullptr,
                    HeadExchange* exchange = nullptr);
  // Call once. `seed`: of the rounding of weights without masters.
  void prepare_optimizer(const OptimizerConfig& config, const StateOptions& state,
                         std::uint64_t seed = 0);

  // As StepRunner::choose_kernels: zeroes the gradients.
  const ops::KernelChoices& choose_kernels(const std::function<bool()>& should_stop = nullptr) {
    return runner_->choose_kernels(should_stop);
  }
  void zero_gradients() { gradients_.zero(); }
  // Forward and backward of one sequence, as StepRunner::run: gradients +=.
  SequenceResult backward(const SequenceInput& input, double scale,
                          const std::function<bool()>& should_stop = nullptr,
                          const OnSequenceProgress& on_progress = nullptr) {
    return runner_->run(input, scale, should_stop, on_progress);
  }
  // After the last backward pass of a step, before gradients are read: adds what was summed apart
  // (model/tied_head.h). In stages, RunRanks does that.
  void finish_gradients() { add_head_gradient(gradients_); }
  // Losses alone, as StepRunner::evaluate.
  SequenceResult evaluate(const SequenceInput& input,
                          const std::function<bool()>& should_stop = nullptr,
                          const OnSequenceProgress& on_progress = nullptr) {
    return runner_->evaluate(input, should_stop, on_progress);
  }
  // Losses first, as StepRunner::run_scored.
  SequenceResult backward_scored(const SequenceInput& input,
                                 const StepRunner::WeightsOf& weights_of, double scale,
                                 const std::function<bool()>& should_stop = nullptr,
                                 const OnSequenceProgress& on_progress = nullptr) {
    return runner_->run_scored(input, weights_of, scale, should_stop, on_progress);
  }
  // From now on runner().losses() holds every token's loss of the last sequence.
  void record_losses() { runner_->record_losses(); }
  // As StepRunner::use_kernels.
  void use_kernels(const ops::KernelChoices& choices) { runner_->use_kernels(choices); }
  double gradient_norm() { return optimizer_->gradient_norm(gradients_); }
  // Name of the first gradient that is not finite; empty if all are finite.
  std::string first_nonfinite() { return optimizer_->first_nonfinite(gradients_); }
  // Update number `number` (from 1) with gradients times `scale`.
  void update(double learning_rate, double scale, std::int64_t number) {
    optimizer_->update(gradients_, learning_rate, scale, number);
    fold_adapters(weights_);
  }
  // The same in parts, for several processes: the update of a shard, and what follows when all of
  // the weights are new.
  void update_shard(const GradientOf& gradient_of, double learning_rate, double scale,
                    std::int64_t number) {
    optimizer_->update(gradient_of, learning_rate, scale, number);
  }
  void finish_update() { fold_adapters(weights_); }
  // The tensors of a checkpoint, in place.
  CheckpointTensors tensors() { return tensors_in_place(weights_, *optimizer_); }

  Device& device() const { return device_; }
  const ModelConfig& config() const { return config_; }
  ParameterSet& weights() { return weights_; }
  const ParameterSet& weights() const { return weights_; }
  ParameterSet& gradients() { return gradients_; }
  const ParameterSet& gradients() const { return gradients_; }
  Optimizer& optimizer() { return *optimizer_; }
  const StepRunner& runner() const { return *runner_; }
  const StepMemory& memory() const { return runner_->memory(); }

 private:
  Device& device_;
  ModelConfig config_;
  ParameterSet weights_, gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace longstride
