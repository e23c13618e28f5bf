// Trainer: the loop of steps, from a plan to checkpoints. For one thread.
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
#include "train/engine.h"
#include "train/run_plan.h"
#include "train/run_sinks.h"

namespace longstride {

// How long a part of the start took.
struct StartTime {
  std::string what;
  double seconds = 0;
};

class Trainer {
 public:
  // Allocates, loads or initializes the weights, and restores the checkpoint that the plan resumes.
  // Without one, an output directory that holds checkpoints is refused. The sinks hear what takes
  // time, and then of the run.
  Trainer(RunPlan plan, Device& device, RunSinks sinks = {});
  // Of the run alone: a sink may need to know where it begins.
  void add_sink(RunSink& sink) { sinks_.push_back(&sink); }

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
  bool run(const RunControl& control = {});

 private:
  void restore();
  void prepare_snapshots();
  // Calls f(sink) for each.
  template <class F>
  void tell(const F& f) {
    for (RunSink* sink : sinks_) f(*sink);
  }
  void timed(const std::string& what, const std::function<void()>& f);
  bool run_to_the_end(const RunControl& control);
  void run_steps(const RunControl& control);
  StepReport step(const RunControl& control);
  // Forward and backward of all sequences; returns where the first loss that is not finite was met,
  // if one was.
  std::string run_sequences(StepReport& report, const RunControl& control);
  // Clipping, and the optimizer's update.
  void update(StepReport& report, const std::string& nonfinite);
  // Sequence number `sequence` of the step, which the report then counts.
  Sample next_sample(std::int64_t sequence, StepReport& report);
  // Says what is not finite; throws, or marks the step as skipped, as training.nonfinite says.
  void handle_nonfinite(StepReport& report, const std::string& where);

  SaveJob save_job() const { return {plan_.config.checkpoint.directory, state_}; }
  // Of saves that the last one makes superfluous. Not before a step has shown that it is good.
  void remove_old_saves();
  // Beside the next steps where host memory allows.
  void save_on_the_way();
  void save_at_the_end();
  // After an error, which is told in any case.
  void save_if_possible();
  // Takes note of a save that has ended. Throws its error if `must_succeed`, else warns of it.
  void settle(const std::optional<SaveOutcome>& outcome, bool must_succeed = false);

  RunPlan plan_;
  TrainState state_;
  std::int64_t saved_step_ = -1;
  bool updated_ = false;  // before_first_update has been called
  bool save_is_due_ = false;
  bool old_saves_are_due_ = false;  // to be removed
  bool updating_ = false;           // weights and moments are those of no step
  std::vector<StartTime> start_times_;
  std::unique_ptr<DirectoryLock> lock_;
  Engine engine_;
  RunSinks sinks_;
  // Of saves on the way; no plan: training waits for them.
  std::optional<SnapshotPlan> snapshot_plan_;
  std::unique_ptr<Memory> snapshot_memory_;
  BackgroundSave saves_;  // last: it reads weights and state
};

}  // namespace longstride
