// Listeners of a training run: progress, metrics, traces and the like are a list of sinks. All
// functions are called by the thread that runs the steps, sink by sink in the order of the list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "train/evaluation.h"
#include "train/step.h"

namespace longstride {

// Report of one optimizer step. `targets` is known before the step begins.
struct StepReport : StepStatistics {
  std::int64_t step = 0, total_steps = 0;  // from 1
  double loss = 0;                         // mean over the targets
  double gradient_norm = 0;                // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;
  std::int64_t samples = 0;                    // consumed since the run began
  double epochs = 0;                           // the same in epochs
  bool skipped = false;                        // not finite: the weights were not updated
  std::vector<std::int64_t> document_lengths;  // of all sequences, for the FLOPs of attention
  std::int64_t peak_rss = 0;                   // resident memory of the process, the most so far
  // Of a run in several processes: tensors that they sent, and the longest that one of them waited.
  // `peak_rss` is the largest of all.
  std::int64_t ranks = 1, bytes_sent = 0;
  double seconds_waiting = 0;
};

// Progress in a step.
struct StepProgress {
  std::int64_t step = 0, total_steps = 0;
  std::int64_t sequence = 0, sequences = 0;
  SequenceProgress in_sequence;
  double done = 0;  // share of the step, without the update
};

// Report of an evaluation on other data, after so many steps.
struct EvalReport {
  std::int64_t step = 0;
  Evaluation evaluation;
  double seconds = 0;
};

class RunSink {
 public:
  virtual ~RunSink() = default;
  // A phase of the start begins: "weights", "optimizer", "memory", "kernels".
  virtual void on_phase(std::string_view /*what*/) {}
  // Before the first step, if there is one, after kernels have been chosen.
  virtual void on_start() {}
  virtual void on_progress(const StepProgress&) {}  // before every task
  virtual void on_step(const StepReport&) {}
  virtual void on_eval(const EvalReport&) {}
  virtual void on_save(const std::filesystem::path&) {}  // a checkpoint is complete
  // A save begins (true); no save is in progress any more (false).
  virtual void on_saving(bool) {}
  // No step follows, whatever the reason.
  virtual void on_end() {}
};

using RunSinks = std::vector<RunSink*>;  // must outlive the run

// Callbacks that control the run. All may be empty.
struct RunControl {
  std::function<bool()> should_stop;  // polled before every task
  // With several processes in its place: what to stop by, a signal's number, or 0. All end with the
  // largest.
  std::function<int()> stop_signal;
  // Polled after the run was stopped; true: exit without saving.
  std::function<bool()> leave_unsaved;
  // Called once, before this process's first update. May throw Error, which ends the run with the
  // weights unchanged.
  std::function<void()> before_first_update;
};

}  // namespace longstride
