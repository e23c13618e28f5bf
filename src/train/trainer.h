// Trainer: the loop of steps, from a plan to checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "train/background_save.h"
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
  OffloadTimes move_times;                   // of them
  bool skipped = false;  // loss or gradients were not finite, and the weights stayed as they were
  std::int64_t samples = 0;                    // consumed since the run began
  double epochs = 0;                           // the same in epochs
  std::vector<std::int64_t> document_lengths;  // of all sequences: what attention worked on
};

// How far a step is.
struct StepProgress {
  std::int64_t step = 0;
  std::int64_t sequence = 0, sequences = 0;
  SequenceProgress in_sequence;
  double done = 0;  // share of the step, the update left out
};

// All are called by the thread that runs the steps, and may be empty.
struct TrainCallbacks {
  // Before the first step, where there is one: kernels have been chosen.
  std::function<void()> on_start;
  std::function<void(const StepProgress&)> on_progress;  // before every task
  // Once, before the first update that this process makes. May throw Error, which ends the run with
  // the weights as they were.
  std::function<void()> before_first_update;
  std::function<void(const StepReport&)> on_step;
  std::function<void(const std::filesystem::path&)> on_save;  // a checkpoint is complete
  std::function<bool()> should_stop;                          // asked before every task
  // A save begins (true); none is under way any more (false).
  std::function<void(bool)> on_saving;
  // Asked where the run was stopped: nothing more is saved.
  std::function<bool()> leave_unsaved;
};

// How long a part of the start took.
struct StartTime {
  std::string what;
  double seconds = 0;
};

class Trainer {
 public:
  using OnPhase = std::function<void(std::string_view)>;
  // Allocates, loads or initializes the weights, and restores the checkpoint that the plan resumes.
  // Without one, an output directory that holds checkpoints is refused. `on_phase` hears what takes
  // time.
  Trainer(RunPlan plan, Device& device, const OnPhase& on_phase = nullptr);

  std::int64_t completed_steps() const { return state_.step; }
  std::int64_t saved_step() const { return saved_step_; }
  const RunPlan& plan() const { return plan_; }
  const std::vector<StartTime>& start_times() const { return start_times_; }

  // Chooses kernels where the record names none, runs to the last step and saves: after every
  // `checkpoint.every` steps beside the next ones, and at the end. A save that fails on the way is
  // told and tried again at the next occasion; one at the end throws.
  //
  // True when all steps are done; false when should_stop ended it, after saving the last completed
  // step if there is one. Where an error ends it, that step is saved too if it still can be, and
  // removes no earlier save.
  bool run(const TrainCallbacks& callbacks);

 private:
  void restore();
  void prepare_snapshots();
  void timed(const std::string& what, const OnPhase& on_phase, const std::function<void()>& f);
  void run_steps(const TrainCallbacks& callbacks);
  StepReport step(const TrainCallbacks& callbacks);
  // Sequence number `sequence` of the step, which the report then counts.
  Sample next_sample(std::int64_t sequence, StepReport& report);
  // Says what is not finite; throws, or marks the step as skipped, as training.nonfinite says.
  void handle_nonfinite(StepReport& report, const std::string& where);

  SaveJob save_job() const { return {plan_.config.checkpoint.directory, state_}; }
  // Of saves that the last one makes superfluous. Not before a step has shown that it is good.
  void remove_old_saves();
  // Beside the next steps where host memory allows.
  void save_on_the_way(const TrainCallbacks& callbacks);
  void save_at_the_end(const TrainCallbacks& callbacks);
  // After an error, which is told in any case.
  void save_if_possible(const TrainCallbacks& callbacks);
  // Takes note of a save that has ended. Throws its error if `must_succeed`, else warns of it.
  void settle(const std::optional<SaveOutcome>& outcome, const TrainCallbacks& callbacks,
              bool must_succeed = false);

  RunPlan plan_;
  TrainState state_;
  std::int64_t saved_step_ = -1;
  bool updated_ = false;  // before_first_update has been called
  bool save_is_due_ = false;
  bool old_saves_are_due_ = false;  // to be removed
  bool updating_ = false;           // weights and moments are those of no step
  std::vector<StartTime> start_times_;
  std::unique_ptr<DirectoryLock> lock_;
  ParameterSet weights_, gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
  // Of saves on the way; no plan: training waits for them.
  std::optional<SnapshotPlan> snapshot_plan_;
  std::unique_ptr<Memory> snapshot_memory_;
  BackgroundSave saves_;  // last: it reads weights and state
};

}  // namespace longstride
