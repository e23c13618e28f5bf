// The report of `bench step` about its fastest run.
#pragma once

#include "base/json.h"
#include "cli/bench_step_options.h"
#include "observe/cpu_time.h"
#include "train/engine.h"

namespace longstride::cli {

struct StepBenchResult {
  double total = 0;  // seconds
  SequenceResult result;
  std::vector<double> task_seconds;  // of a stage, as in SequenceInput
  CpuTime cpu;
  std::vector<std::int64_t> documents;  // where they begin
  std::int64_t context = 0;
  std::int64_t baseline_rss = 0, peak_rss = 0;
  bool own_peak = false;              // the peak is that of the step alone
  std::int64_t used_after_first = 0;  // bytes of the device, by its driver
  bool traced = false;
  double saved_flops = 0;  // of recomputation, by activations that stay
  NumericsRecord record;
  OrderedJson numerics;  // the record, with the kernels that were chosen
};

// Returns the measurements and logs them.
OrderedJson report_step(const StepBenchOptions& o, Engine& engine, const StepBenchResult& best);

}  // namespace longstride::cli
