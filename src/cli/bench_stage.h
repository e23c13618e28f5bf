// One stage of a pipeline, alone on one device: `bench step --stages 8 --stage 3`.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cli/bench_step_options.h"
#include "model/neighbours.h"
#include "model/stage_parts.h"
#include "plan/pipeline_simulation.h"
#include "plan/step_plan.h"

namespace longstride::cli {

// The layers of the stage that the options name: all of them without --stages. Throws Error for a
// stage that does not exist, and for a model that cannot be cut.
StageParts stage_of(const StepBenchOptions& o, const ModelConfig& config,
                    const std::vector<ParameterSpec>& parameters, const NumericsRecord& numerics,
                    std::int64_t context);

// In place of the other stages: inputs and gradients are noise, what is sent is dropped. Null for a
// whole model. Takes memory for one chunk's tensor beyond the plan's.
std::unique_ptr<Neighbours> noise_neighbours(const StageParts& parts, Device& device,
                                             std::int64_t tokens);

// A pipeline of so many stages that all take as long as this one did, by the seconds of its tasks.
// Nothing for the first or last stage of a model whose chunks go forward in pairs.
std::optional<PipelineRun> simulate_equal_stages(const StepPlan& plan, const SequenceLayout& layout,
                                                 const std::vector<double>& task_seconds,
                                                 std::int64_t stages, std::int64_t token_bytes,
                                                 const PipelineLink& link);

}  // namespace longstride::cli
