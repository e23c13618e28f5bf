// The options of `bench step` and their interpretation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench.h"
#include "cli/bench_update.h"
#include "model/config.h"
#include "plan/step_plan.h"
#include "train/engine.h"
#include "train/step.h"

namespace longstride::cli {

struct StepBenchOptions {
  std::string preset, context, document, chunk,
      page = "128", attention = "dense", window, dtype, quantize, json, device = "auto",
      page_memory, gpu_memory, activation_memory, host_memory, disk_memory, disk_path, optimizer,
      trace, link_rate, svg, optimizer_state, tokens = "random", plan = "recompute";
  std::int64_t layers = 0, lora = 0, repeat = 1, keep_chunks = 1, updates = 0;
  std::int64_t stages = 1, stage = 0;
  bool rebuild_feed_forward = false, profile = false, no_masters = false;
  NumericsChoice numerics;
  AttentionChoice sparse;
};

void add_options(CLI::App& command, const std::shared_ptr<StepBenchOptions>& options);
// Throws Error for options that would have no effect.
void check_options(const StepBenchOptions& o);
// Warns about options that have no effect under the plan.
void warn_of_unused(const StepBenchOptions& o, const StepMemory& m);

// The model, with its windows, and its sparse layers.
struct BenchShape {
  ModelConfig config;
  SparseLayers sparse;
};
BenchShape shape_of(const StepBenchOptions& o);
// Nothing if it is not given.
std::optional<std::int64_t> disk_memory(const StepBenchOptions& o);
// Where the optimizer's state goes, in addition to the pages of the step.
UpdateBench update_of(const StepBenchOptions& o, const StepMemory& step);
// Where documents begin in the sequence.
std::vector<std::int64_t> document_starts(const StepBenchOptions& o, std::int64_t context);

}  // namespace longstride::cli
