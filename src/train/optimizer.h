// AdamW over the trainable parameters, with fp32 moments and, if weights are not fp32, fp32
// masters. The state is on the device, in host memory or on disk (train/optimizer_state.h), with
// the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "train/config.h"
#include "train/optimizer_state.h"

namespace longstride {

// AdamW's columns, by their index.
inline constexpr std::int64_t kFirstMoment = 0, kSecondMoment = 1, kMaster = 2;
// The last one exists if a trainable weight is not fp32.
StateColumns adamw_columns(const std::vector<ParameterSpec>& weights);

// Gradients must be made from the same list as the weights; those of frozen parameters are absent.
//
// Not thread-safe: the thread that runs the step owns it.
class Optimizer {
 public:
  // `weights` outlives the optimizer. Masters start as the weights.
  Optimizer(ParameterSet& weights, const OptimizerConfig& options, const StateOptions& state = {});

  static StateBytes bytes_needed(const std::vector<ParameterSpec>& weights,
                                 const StateOptions& state);

  // Global norm of all gradients, in double.
  double gradient_norm(const ParameterSet& gradients);
  // The first parameter, in the order of the backward pass, whose gradient has a value that is not
  // finite; empty if there is none. Waits for the device once per parameter: for reports.
  std::string first_nonfinite(const ParameterSet& gradients);
  // One update with gradients scaled by `gradient_scale`; `step` counts from 1. Complete when it
  // returns.
  void update(const ParameterSet& gradients, double learning_rate, double gradient_scale,
              std::int64_t step);

  // True if there are masters: not all trainable weights are fp32.
  bool has_masters() const { return has_masters_; }
  OptimizerState& state() { return *state_; }
  const OptimizerState& state() const { return *state_; }

 private:
  // Norm of the gradients of the trainable parameters in [begin, end).
  double norm_of(const ParameterSet& gradients, std::int64_t begin, std::int64_t end);

  ParameterSet& weights_;
  OptimizerConfig options_;
  bool has_masters_;
  std::unique_ptr<OptimizerState> state_;
  std::unique_ptr<Memory> norm_;
};

}  // namespace longstride
