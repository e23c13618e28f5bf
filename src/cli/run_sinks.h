// What `train` does with a run while it goes on: the console, the metrics file, the trace. All are
// for the thread that runs the steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "observe/metrics_file.h"
#include "observe/run_console.h"
#include "observe/tracer.h"
#include "train/trainer.h"

namespace longstride::cli {

// Phases and progress on stderr.
class ConsoleSink final : public RunSink {
 public:
  void on_phase(std::string_view what) override;
  void on_progress(const StepProgress& progress) override;
  // Prints the line of a step that has ended.
  std::function<void(const std::string&)> lines() {
    return [this](const std::string& line) { console_.end_step(line); };
  }

 private:
  RunConsole console_;
};

// Says what was saved, and has signals wait for saves that are under way.
class SaveSink final : public RunSink {
 public:
  void on_save(const std::filesystem::path& path) override;
  void on_saving(bool saving) override;
};

// "start: plan 0.1 s, weights 2.3 s, ...": what the time before the first step went into.
class StartTimesSink final : public RunSink {
 public:
  // `trainer` outlives it.
  StartTimesSink(const Trainer& trainer, double plan_s) : trainer_(trainer), plan_s_(plan_s) {}
  void on_start() override;

 private:
  const Trainer& trainer_;
  double plan_s_;
};

// A line of metrics for every step, and one for people. Metrics that cannot be written are no
// reason to end a run.
class RecordSink final : public RunSink {
 public:
  // `plan` outlives it. Metrics behind `begin_step` are dropped. Throws Error where the file cannot
  // be written at all.
  RecordSink(const RunPlan& plan, std::int64_t begin_step,
             std::function<void(const std::string&)> print_line);
  void on_start() override { begin_ = std::chrono::steady_clock::now(); }
  void on_step(const StepReport& report) override;

 private:
  const RunPlan& plan_;
  std::int64_t begin_step_;
  std::function<void(const std::string&)> print_line_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  MetricsFile file_;
  bool failing_ = false;  // told once
};

// Traces the first steps. A trace that cannot be written is no reason to end a run.
class TraceSink final : public RunSink {
 public:
  // `tracer` and `device` outlive it. The trace ends with step `last_step`, or with the run.
  TraceSink(Tracer& tracer, Device& device, std::string title, std::int64_t last_step);
  void on_start() override { tracer_.start(device_, title_); }
  void on_step(const StepReport& report) override;
  void on_end() override { finish(); }

 private:
  void finish();

  Tracer& tracer_;
  Device& device_;
  std::string title_;
  std::int64_t last_step_;
};

}  // namespace longstride::cli
