// AdamW over the trainable parameters, with moments in fp32 or 8 bits. Weights that are not fp32
// have fp32 masters, or none and are rounded stochastically. The state is on the device, in host
// memory or on disk (train/optimizer_state.h), with the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "train/config.h"
#include "train/optimizer_state.h"
#include "train/state_shards.h"

namespace longstride {

// AdamW's columns, by their index. Moments in 8 bits (ops/optimizer.h) have codes and magnitudes,
// and fp32 moments only for small parameters, as in bitsandbytes. Masters, if there are any, come
// last.
inline constexpr std::int64_t kFirstMoment = 0, kSecondMoment = 1, kFirstCode = 2, kSecondCode = 3,
                              kFirstAbsmax = 4, kSecondAbsmax = 5;
inline constexpr std::int64_t kSmallestCoded = 4096;  // elements
StateColumns adamw_columns(const std::vector<ParameterSpec>& weights,
                           const OptimizerConfig& options);

// Gradient of parameter i, as far as it belongs to the optimizer's shard; in one dimension.
using GradientOf = std::function<View(std::int64_t)>;

// Gradients must be made from the same list as the weights; those of frozen parameters are absent.
// An optimizer of a shard updates its part of the weights alone.
//
// Not thread-safe: the thread that runs the step owns it.
class Optimizer {
 public:
  // `weights` outlives the optimizer. Masters start as the weights. `seed`: of the rounding without
  // masters, which depends on it, the update's number, the parameter and the element alone.
  Optimizer(ParameterSet& weights, const OptimizerConfig& options, const StateOptions& state = {},
            std::uint64_t seed = 0);

  static constexpr std::int64_t kNormBytes = 8;  // on the device, for sums of squares
  // Of its state, and no more.
  static StateBytes bytes_needed(const std::vector<ParameterSpec>& weights,
                                 const OptimizerConfig& options, const StateOptions& state);

  // Global norm of all gradients, in double.
  double gradient_norm(const ParameterSet& gradients);
  // `before` and the squares of the gradients of parameters [begin, end), added in their order.
  double add_squares(const ParameterSet& gradients, std::int64_t begin, std::int64_t end,
                     double before);
  // The first parameter, in the order of the backward pass, whose gradient has a value that is not
  // finite; empty if there is none. Waits for the device once per parameter: for reports.
  std::string first_nonfinite(const ParameterSet& gradients);
  // Sums of squares of the pieces of this shard, each from zero.
  std::vector<double> piece_squares(const GradientOf& gradient_of,
                                    const std::vector<ParameterPiece>& pieces);
  // The part of all gradients that belongs to the shard.
  GradientOf in_shard(const ParameterSet& gradients) const;
  // One update with gradients scaled by `gradient_scale`; `step` counts from 1. Complete when it
  // returns.
  void update(const GradientOf& gradient_of, double learning_rate, double gradient_scale,
              std::int64_t step);
  void update(const ParameterSet& gradients, double learning_rate, double gradient_scale,
              std::int64_t step) {
    update(in_shard(gradients), learning_rate, gradient_scale, step);
  }

  // True if there are masters: wanted, and not all trainable weights are fp32.
  bool has_masters() const { return has_masters_; }
  const StateShard& shard() const { return shard_; }
  OptimizerState& state() { return *state_; }
  const OptimizerState& state() const { return *state_; }

 private:
  // Of the parameter's elements, the first in the segment.
  std::int64_t first_of(const StateSegment& segment) const;
  // The segment's masters, if there are any.
  View master_of(const StateSegment& segment) const;

  ParameterSet& weights_;
  OptimizerConfig options_;
  std::uint64_t seed_;
  bool has_masters_;
  StateShard shard_;
  std::unique_ptr<OptimizerState> state_;
  std::unique_ptr<Memory> norm_;
};

}  // namespace longstride
