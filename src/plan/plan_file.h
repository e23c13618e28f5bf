// A plan in a file, with the shapes that it is for: `longstride plan --out` writes it, `bench step
// --plan FILE` runs it.
#pragma once

#include <filesystem>
#include <string_view>

#include "plan/step_plan.h"

namespace longstride {

void write_plan_file(const std::filesystem::path& path, const ModelConfig& config,
                     const NumericsRecord& numerics, const StepPlan& plan);

// Throws Error, with the first difference, if the plan is of another model, record or context; and
// if the file is damaged.
StepPlan read_plan_file(const std::filesystem::path& path, const ModelConfig& config,
                        const NumericsRecord& numerics, std::int64_t tokens);

// Whether a file that begins so is one.
bool begins_as_plan_file(std::string_view head);

}  // namespace longstride
