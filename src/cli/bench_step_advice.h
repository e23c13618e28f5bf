// What `bench step` says where memory is too small: the least that would do, and what the automatic
// plan would take.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan_choice.h"
#include "train/engine.h"

namespace longstride::cli {

// A step that is planned, on an engine that holds the weights and gradients already.
struct StepOfEngine {
  const Engine& engine;
  const NumericsRecord& numerics;
  const StepOptions& options;

  StepPlanner planner(const StepOptions& with) const { return engine.planner(numerics, with); }
  StepPlanner planner() const { return planner(options); }
  ChosenPlan choose(const StepLimits& limits) const;
  std::int64_t fixed_bytes() const { return engine.weights().bytes() + engine.gradients().bytes(); }
  // What a GPU's driver and libraries take.
  std::int64_t other_bytes() const;
};

// What --plan auto may use beside weights and gradients, if no option limits it.
StepLimits limits_of_machine(const Device& device);

// What helps where no plan fits.
inline constexpr const char* kSmallerStep =
    "give a shorter --context, a smaller --chunk or fewer --layers";

// As an option takes it, rounded up: "256KiB", "33.5GiB".
std::string size_option(std::int64_t bytes);

// The least bytes of the device for everything, driver and libraries included, given those
// elsewhere.
std::int64_t least_device_bytes(const StepOfEngine& step, const PageBudget& elsewhere);

// "SUBJECT would keep 1.00 GiB of activations: 33.40 GiB on the device, 12.00 GiB in host memory",
// by what this machine has; or how much more than that is needed.
std::string automatic_plan(const StepOfEngine& step, const std::string& subject);

}  // namespace longstride::cli
