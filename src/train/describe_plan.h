// What a planned run will do and need, in words.
#pragma once

#include <optional>
#include <string>

#include "data/corpus_scan.h"
#include "train/run_plan.h"

namespace longstride {

// The predicted time of a training step; rough if the machine's rates are estimates.
struct PredictedStep {
  double seconds = 0;
  bool rough = false;
};

// In six lines, for the start of a run: model, data, step, activations, device, elsewhere.
std::string summarize(const RunPlan& plan, const std::optional<PredictedStep>& step);

// A table for a dry run: model, data with the results of its scan (data_check.h), numerics, bytes
// by tenant.
std::string describe(const RunPlan& plan, const CorpusFacts& facts,
                     const std::optional<PredictedStep>& step);

}  // namespace longstride
