// What training on a context would need and how long it would take, on this machine or another,
// before anything runs. Made by the same code that plans a run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/machine_rates.h"
#include "plan/step_cost.h"
#include "train/run_plan.h"

namespace longstride {

// How the activations of recomputed chunks are treated: for each kind, the share of (chunk, layer)s
// whose tensor stays on the device, or leaves it and comes back. The others are recomputed.
struct RetentionShares {
  std::array<double, kRetainedKinds> kept{}, swapped{};
};
RetentionShares retention_shares(const StepPlan& plan);
// "attention 100%, input 83%", or "nothing".
std::string describe_shares(const std::array<double, kRetainedKinds>& shares);

struct Outlook {
  RunPlan plan;
  std::string problem, hint;               // why it does not fit; empty if it does
  std::vector<std::string> remedies;       // settings with which it would (train/remedies.h)
  std::shared_ptr<const Outlook> changed;  // with these; null if there are none
  StepCost step;                           // of one sequence; meaningless if it does not fit
  double update_seconds = 0;
  RetentionShares shares;

  bool fits() const { return problem.empty(); }
  std::int64_t context() const { return plan.config.training.context; }
  // Sequences of a training step.
  double batch() const { return static_cast<double>(plan.config.training.batch); }
  // Of a training step.
  double seconds() const { return batch() * step.total() + update_seconds; }
  double tokens_per_s() const;
  double utilization() const;
  // Of a million tokens, if the machine costs so much an hour.
  double price_per_million(double price_per_hour) const;
};

// What the update of a planned run reads and writes.
UpdateBytes update_bytes(const RunNeeds& needs);

// Of a training step as planned, all its sequences as long as the context, with the update; nothing
// if the step was not planned or the rates are for another type of activations.
std::optional<double> predict_training_step(const RunPlan& plan, const MachineRates& rates);

// `config` names model, context, chunk and memory; of its data nothing is read. The device may be
// one of shapes. Throws Error for a model or settings that are wrong, not for want of memory.
Outlook make_outlook(const TrainConfig& config, Device& device, const MachineRates& rates);

// The longest context that fits, in whole chunks; nothing if not even one chunk does.
std::optional<std::int64_t> longest_context(const TrainConfig& config, Device& device,
                                            const MachineRates& rates);

}  // namespace longstride
