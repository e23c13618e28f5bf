// What a planned run will do and need, in words.
#pragma once

#include <optional>
#include <string>

#include "data/corpus_scan.h"
#include "train/run_plan.h"

namespace longstride {

// In six lines, for the start of a run: model, data, step, activations, device, elsewhere.
// `step_seconds` is the predicted time of a training step, if there is one.
std::string summarize(const RunPlan& plan, std::optional<double> step_seconds);

// A table for a dry run: model, data with the results of its scan (data_check.h), numerics, bytes
// by tenant.
std::string describe(const RunPlan& plan, const CorpusFacts& facts,
                     std::optional<double> step_seconds);

}  // namespace longstride
