// RecordSink: the metrics file of a run. Not thread-safe: the thread that runs the steps owns it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/json.h"
#include "observe/metrics_file.h"
#include "train/run_plan.h"
#include "train/run_sinks.h"

namespace longstride::api {

// Writes a metrics line for every step and prints one on the console. A failed write of metrics
// does not end the run.
class RecordSink final : public RunSink {
 public:
  // `plan` must outlive it. Drops metrics after `begin_step`. `on_line` gets what is written.
  // Throws Error if the file cannot be written at all.
  RecordSink(const RunPlan& plan, std::int64_t begin_step,
             std::function<void(const std::string&)> print_line,
             std::function<void(const OrderedJson&)> on_line = nullptr);
  void on_start() override { begin_ = std::chrono::steady_clock::now(); }
  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;

 private:
  // A failed write does not end the run.
  void write(const OrderedJson& line, std::int64_t step);

  const RunPlan& plan_;
  std::int64_t begin_step_;
  std::function<void(const std::string&)> print_line_;
  std::function<void(const OrderedJson&)> on_line_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  MetricsFile file_;
  bool failing_ = false;  // so that the warning appears once
};

}  // namespace longstride::api
