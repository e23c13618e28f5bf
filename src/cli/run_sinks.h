// The sinks of `train`, beside that of the metrics file (api/record_sink.h): the console, the
// trace. Not thread-safe: the thread that runs the steps owns them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "observe/run_console.h"
#include "observe/tracer.h"
#include "train/trainer.h"

namespace longstride::cli {

// Phases and progress on stderr.
class ConsoleSink final : public RunSink {
 public:
  void on_phase(std::string_view what) override;
  void on_progress(const StepProgress& progress) override;
  // Returns a function that prints the line of a completed step.
  std::function<void(const std::string&)> lines() {
    return [this](const std::string& line) { console_.end_step(line); };
  }

 private:
  RunConsole console_;
};

// Logs saves, and makes signals wait for a save in progress.
class SaveSink final : public RunSink {
 public:
  void on_save(const std::filesystem::path& path) override;
  void on_saving(bool saving) override;
};

// Logs how long the phases before the first step took: "start: plan 0.1 s, weights 2.3 s, ...".
class StartTimesSink final : public RunSink {
 public:
  // `trainer` must outlive it.
  StartTimesSink(const Trainer& trainer, double plan_s) : trainer_(trainer), plan_s_(plan_s) {}
  void on_start() override;

 private:
  const Trainer& trainer_;
  double plan_s_;
};

// Says at the end how the run went, beside how it was planned.
class PlannedSink final : public RunSink {
 public:
  // `device` must outlive it. `seconds`: of a step, predicted; `bytes`: of the device, planned.
  PlannedSink(const Device& device, std::optional<double> seconds, std::int64_t bytes)
      : device_(device), seconds_(seconds), bytes_(bytes) {}
  void on_step(const StepReport& report) override;
  // Nothing if fewer than two steps were run: the first one chooses kernels.
  void finish() const;

 private:
  const Device& device_;
  std::optional<double> seconds_;
  std::int64_t bytes_, steps_ = 0;
  double first_s_ = 0, all_s_ = 0;
};

// Traces the first steps. A failed write of the trace does not end the run.
class TraceSink final : public RunSink {
 public:
  // `tracer` and `device` must outlive it. The trace ends with step `last_step`, or with the run.
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
