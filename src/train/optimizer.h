// AdamW over the trainable parameters, with fp32 moments and, where weights are not fp32
// themselves, fp32 masters, on the device, in host memory or on disk (train/optimizer_state.h): the
// same bits.
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
// The last one is there where a trainable weight is not fp32.
StateColumns adamw_columns(const std::vector<ParameterSpec>& weights);

// Gradients that it is given are of the list that the weights are of; those of frozen parameters
// are absent.
class Optimizer {
 public:
  // `weights` outlives the optimizer. Masters start as the weights.
  Optimizer(ParameterSet& weights, const OptimizerConfig& options, const StateOptions& state = {});

  static StateBytes bytes_needed(const std::vector<ParameterSpec>& weights,
                                 const StateOptions& state);

  // Global norm of all gradients, in double.
  double gradient_norm(const ParameterSet& gradients);
  // The parameter whose gradient was the first, in the order of the backward pass, to hold a value
  // that is not finite; empty where all are. Waits for the device once per parameter: for reports.
  std::string first_nonfinite(const ParameterSet& gradients);
  // One update with gradients scaled by `gradient_scale`; `step` counts from 1. Done when it
  // returns.
  void update(const ParameterSet& gradients, double learning_rate, double gradient_scale,
              std::int64_t step);

  // Whether there are masters: the trainable weights are not all fp32.
  bool has_masters() const { return has_masters_; }
  OptimizerState& state() { return *state_; }
  const OptimizerState& state() const { return *state_; }

 private:
  // Square root of the sum of squares of those among parameters [begin, end) that are trainable.
  double norm_of(const ParameterSet& gradients, std::int64_t begin, std::int64_t end);

  ParameterSet& weights_;
  OptimizerConfig options_;
  bool has_masters_;
  std::unique_ptr<OptimizerState> state_;
  std::unique_ptr<Memory> norm_;
};

}  // namespace longstride
