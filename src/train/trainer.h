// Trainer: the loop of steps, from a plan to checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/files.h"
#include "train/checkpoint.h"
#include "train/run_plan.h"
#include "train/step.h"

namespace longstride {

// What is known of one optimizer step.
struct StepReport {
  std::int64_t step = 0, total_steps = 0;
  double loss = 0;  // mean over all counted targets of the step
  double gradient_norm = 0, learning_rate = 0;
  std::int64_t tokens = 0, counted = 0, correct = 0;
  double total_s = 0, forward_s = 0, recompute_s = 0, backward_s = 0, update_s = 0;
  std::int64_t moved_out = 0, moved_in = 0;  // bytes of pages that left the device and came back
  PageTimes move_times;                      // of them
  bool skipped = false;  // loss or gradients were not finite, and the weights stayed as they were
  std::vector<std::int64_t> document_lengths;  // of all sequences: what attention worked on
};

struct TrainCallbacks {
  // Before the first step, where there is one: kernels have been chosen.
  std::function<void()> on_start;
  // Once, before the first update that this process makes. May throw Error, which ends the run with
  // the weights as they were.
  std::function<void()> before_first_update;
  std::function<void(const StepReport&)> on_step;
  std::function<void(const std::filesystem::path&)> on_save;
  std::function<bool()> should_stop;  // asked between chunks
};

class Trainer {
 public:
  // Allocates, loads or initializes the weights, and with `resume` restores the newest checkpoint
  // of the output directory (a fresh start where there is none). Without `resume`, a directory that
  // holds checkpoints is refused.
  Trainer(RunPlan plan, Device& device, bool resume);

  std::int64_t completed_steps() const { return state_.step; }
  const RunPlan& plan() const { return plan_; }
  // Chooses kernels where the record names none, runs to the last step and saves. True when all
  // steps are done; false when should_stop ended it, after saving the last completed step. Where an
  // Error ends it, that step is saved too if it still can be.
  bool run(const TrainCallbacks& callbacks);

 private:
  void restore(const std::filesystem::path& directory);
  StepReport step(const TrainCallbacks& callbacks);
  // Sequence number `sequence` of the step, which the report then counts.
  Sample next_sample(std::int64_t sequence, StepReport& report);
  // Says what is not finite; throws, or marks the step as skipped, as training.nonfinite says.
  void handle_nonfinite(StepReport& report, const std::string& where);
  void save(const TrainCallbacks& callbacks);
  // After an error, which is told in any case.
  void save_if_possible(const TrainCallbacks& callbacks);

  RunPlan plan_;
  TrainState state_;
  std::int64_t saved_step_ = -1, skipped_in_a_row_ = 0;
  bool updated_ = false;   // before_first_update has been called
  bool updating_ = false;  // weights and moments are those of no step
  bool saving_ = false;    // stays so where it failed
  std::unique_ptr<DirectoryLock> lock_;
  ParameterSet weights_, gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
};

}  // namespace longstride
