#include "train/engine.h"

#include <utility>

#include "base/error.h"

namespace longstride {

Engine::Engine(Device& device, const ModelConfig& config,
               const std::vector<ParameterSpec>& parameters)
    : device_(device),
      config_(config),
      weights_(device, parameters, "weights"),
      gradients_(ParameterSet::gradients(device, parameters)) {}

void Engine::start_adapters(std::uint64_t seed) {
  initialize_adapters(weights_, seed);
  fold_adapters(weights_);
}

StepPlanner Engine::planner(const NumericsRecord& numerics, const StepOptions& options) const {
  return {device_, config_, weights_.specs(), numerics, options};
}

void Engine::prepare_step(const NumericsRecord& numerics, StepPlan plan, Neighbours* neighbours,
                          HeadExchange* exchange) {
  LS_CHECK(runner_ == nullptr, "the step of {} tokens is prepared already",
           runner_->plan().max_tokens);
  runner_ = std::make_unique<StepRunner>(config_, weights_, gradients_, numerics, std::move(plan),
                                         nullptr, neighbours, exchange);
}

void Engine::prepare_optimizer(const OptimizerConfig& config, const StateOptions& state,
                               std::uint64_t seed) {
  LS_CHECK(optimizer_ == nullptr, "learning rate {}: there is an optimizer already",
           config.learning_rate);
  optimizer_ = std::make_unique<Optimizer>(weights_, config, state, seed);
}

}  // namespace longstride
