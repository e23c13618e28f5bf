// AdamW over all parameters, with fp32 moments and, where weights are not fp32 themselves, fp32
// masters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/parameters.h"
#include "train/config.h"

namespace longstride {

class Optimizer {
 public:
  // `weights` outlives the optimizer. Masters start as the weights.
  Optimizer(const ModelConfig& config, ParameterSet& weights, const OptimizerConfig& options);

  static std::int64_t bytes_needed(const ModelConfig& config,
                                   const std::vector<DType>& weight_dtypes);

  // Global norm of all gradients, in double.
  double gradient_norm(const ParameterSet& gradients);
  // The parameter whose gradient was the first, in the order of the backward pass, to hold a value
  // that is not finite; empty where all are. Waits for the device once per parameter: for reports.
  std::string first_nonfinite(const ParameterSet& gradients);
  // One update with gradients scaled by `gradient_scale`; `step` counts from 1.
  void update(const ParameterSet& gradients, double learning_rate, double gradient_scale,
              std::int64_t step);

  // The weights as the optimizer sees them: the masters, or the weights themselves where those are
  // fp32.
  ParameterSet& first_moment() { return first_; }
  ParameterSet& second_moment() { return second_; }
  ParameterSet* masters() { return masters_.get(); }  // null where the weights are the masters
  std::int64_t bytes() const;

 private:
  // Square root of the sum of squares of parameters [begin, end).
  double norm_of(const ParameterSet& gradients, std::int64_t begin, std::int64_t end);

  ParameterSet& weights_;
  OptimizerConfig options_;
  ParameterSet first_, second_;
  std::unique_ptr<ParameterSet> masters_;
  std::unique_ptr<Memory> norm_;
};

}  // namespace longstride
