// A training run as `longstride train` runs it, for programs that listen to it in their own way.
#pragma once

#include <functional>

#include "base/json.h"
#include "train/config.h"
#include "train/resume_point.h"
#include "train/run_sinks.h"

namespace longstride::api {

// All are called by the thread that runs the steps; any may be empty. What they throw ends the run
// as an error does, after the last completed step has been saved.
struct RunListener {
  std::function<void(const OrderedJson&)> on_start;  // the settings, and what the run will need
  std::function<void(const StepProgress&)> on_progress;
  std::function<void(const OrderedJson&)> on_step;  // the line of the metrics file
  std::function<void(const OrderedJson&)> on_eval;  // likewise
  std::function<void(const std::filesystem::path&)> on_save;
  std::function<bool()> should_stop;  // polled before every task; true: saves and returns
};

// Plans, checks, trains and saves. Returns whether all steps are done. Throws Error. Saves appear
// in checkpoint.directory, lines in metrics.file.
bool train(const TrainConfig& config, const ResumeChoice& resume, const RunListener& listener);

}  // namespace longstride::api
