// Trainer: the training loop, from a plan to checkpoints; with several processes, in all of them.
//
// Not thread-safe: the thread that runs the steps owns it.
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
#include "train/run_ranks.h"
#include "train/run_sinks.h"

namespace longstride {

// Duration of one phase of the start.
struct StartTime {
  std::string what;
  double seconds = 0;
};

class Trainer {
 public:
  // Allocates, loads or initializes the weights, and restores the checkpoint that the plan resumes.
  // Without one, an output directory that holds checkpoints is refused. The sinks are notified of
  // the phases of the start, and then of the run.
  // `link`: to the other processes, if there are any, which do the same. `tensors`: the link that
  // tensors take, if it is another. Both must outlive this.
  Trainer(RunPlan plan, Device& device, RunSinks sinks = {}, comm::MessageLink* link = nullptr,
          comm::Link* tensors = nullptr);
  // Adds a sink for the run alone, which may depend on where the run begins.
  void add_sink(RunSink& sink) { sinks_.push_back(&sink); }

  std::int64_t completed_steps() const { return state_.step; }
  std::int64_t saved_step() const { return saved_step_; }
  const RunPlan& plan() const { return plan_; }
  // Host memory for copies of what is saved on the way.
  std::int64_t snapshot_bytes() const { return snapshot_memory_ ? snapshot_memory_->bytes() : 0; }
  const std::vector<StartTime>& start_times() const { return start_times_; }
  // With several processes: the signal that all of them were stopped by.
  int stop_signal() const { return ranks_.stop_signal(); }

  // Chooses kernels that the record does not name, runs to the last step and saves: every
  // `checkpoint.every` steps in the background, and at the end. A background save that fails causes
  // a warning and is retried; one at the end throws.
  //
  // Returns true when all steps are done; false if should_stop ended the run, after saving the last
  // completed step, if any. If an error ends the run, that step is also saved if possible, and no
  // earlier save is removed.
  bool run(const RunControl& control = {});

 private:
  void restore();
  void prepare_snapshots();
  // Calls f(sink) for each sink.
  template <class F>
  void tell(const F& f) {
    for (RunSink* sink : sinks_) f(*sink);
  }
  void timed(const std::string& what, const std::function<void()>& f);
  bool run_to_the_end(const RunControl& control);
  void run_steps(const RunControl& control);
  StepReport step(const RunControl& control);
  // On the data of [eval], with the present weights.
  void evaluate(const RunControl& control);
  // Forward and backward of all sequences; returns where the first loss that is not finite
  // occurred, if any.
  std::string run_sequences(StepReport& report, const RunControl& control);
  // Clipping, and the optimizer's update.
  void update(StepReport& report, const std::string& nonfinite);
  // Sequence number `sequence` of the step; adds it to the report.
  Sample next_sample(std::int64_t sequence, StepReport& report);
  // Reports what is not finite; throws, or marks the step as skipped, as set by
  // training.nonfinite.
  void handle_nonfinite(StepReport& report, const std::string& where);

  // Of this process's part, with the kernels chosen so far.
  NumericsRecord part_numerics() const;
  SaveJob save_job() const { return {plan_.config.checkpoint.directory, state_}; }
  // Training waits for it.
  SaveOutcome save_now();
  // Removes saves that the newest one replaces, once a later step has shown that it is good.
  void remove_old_saves();
  // In the background, if host memory allows.
  void save_on_the_way();
  void save_at_the_end();
  // After an error, which is reported in any case.
  void save_if_possible();
  // Processes the outcome of a save. Throws its error if `must_succeed`, else warns.
  void settle(const std::optional<SaveOutcome>& outcome, bool must_succeed = false);

  RunPlan plan_;
  TrainState state_;
  std::int64_t saved_step_ = -1;
  bool updated_ = false;  // before_first_update has been called
  bool save_is_due_ = false;
  bool old_saves_are_due_ = false;  // to be removed
  bool updating_ = false;           // weights and moments are between two steps
  bool all_fail_ = false;           // the error is that of all processes
  std::vector<StartTime> start_times_;
  std::unique_ptr<DirectoryLock> lock_;
  Engine engine_;
  RunRanks ranks_;
  RunSinks sinks_;
  // For background saves; no plan: training waits for saves.
  std::optional<SnapshotPlan> snapshot_plan_;
  std::unique_ptr<Memory> snapshot_memory_;
  BackgroundSave saves_;  // last: it reads weights and state
};

}  // namespace longstride
