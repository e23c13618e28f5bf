#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/optimizer.h"
#include "tensor/dynamic_code.h"
#include "tensor/stochastic_weight.h"

namespace longstride {
namespace {

bool needs_masters(const std::vector<ParameterSpec>& weights, const OptimizerConfig& options) {
  return options.masters && std::ranges::any_of(weights, [](const ParameterSpec& spec) {
           return spec.trainable && spec.dtype != DType::kF32;
         });
}

// Elements of a tensor, as one row.
View part_of(const View& tensor, std::int64_t first, std::int64_t elements) {
  return {static_cast<std::byte*>(tensor.data()) + first * size_of(tensor.dtype()),
          tensor.dtype(),
          {elements}};
}

}  // namespace

StateColumns adamw_columns(const std::vector<ParameterSpec>& weights,
                           const OptimizerConfig& options) {
  StateColumns columns = {{.name = "first_moment", .what = "first moments"},
                          {.name = "second_moment", .what = "second moments"}};
  if (options.state == "8bit") {
    for (StateColumn& column : columns) column.below = kSmallestCoded;
    for (const char* name : {"first_moment", "second_moment"})
      columns.push_back(
          {.name = name, .what = "moments in 8 bits", .dtype = DType::kU8, .from = kSmallestCoded});
    for (const char* name : {"first_moment_absmax", "second_moment_absmax"})
      columns.push_back({.name = name,
                         .what = "magnitudes of moments",
                         .block = kCodeBlock,
                         .from = kSmallestCoded});
  }
  if (needs_masters(weights, options))
    columns.push_back({.name = "master", .what = "master weights"});
  return columns;
}

Optimizer::Optimizer(ParameterSet& weights, const OptimizerConfig& options,
                     const StateOptions& state, std::uint64_t seed)
    : weights_(weights),
      options_(options),
      seed_(seed),
      has_masters_(needs_masters(weights.specs(), options)),
      shard_(shard_of(weights.specs(), state.shards, state.shard)),
      state_(make_optimizer_state(weights.device(), shard_.specs,
                                  adamw_columns(weights.specs(), options), state)),
      norm_(weights.device().allocate(kNormBytes, "gradient norm")) {
  state_->start([&](const StateSegment& segment) {
    if (has_masters_)
      ops::convert(weights.device().stream(),
                   {part_of(weights.view(segment.parameter), first_of(segment), segment.elements),
                    master_of(segment)});
  });
}

StateBytes Optimizer::bytes_needed(const std::vector<ParameterSpec>& weights,
                                   const OptimizerConfig& options, const StateOptions& state) {
  return optimizer_state_bytes(shard_of(weights, state.shards, state.shard).specs,
                               adamw_columns(weights, options), state);
}

std::int64_t Optimizer::first_of(const StateSegment& segment) const {
  return shard_.first[static_cast<std::size_t>(segment.parameter)] + segment.first;
}

GradientOf Optimizer::in_shard(const ParameterSet& gradients) const {
  return [&](std::int64_t i) {
    return part_of(gradients.view(i), shard_.first[static_cast<std::size_t>(i)],
                   shard_.elements(i));
  };
}

View Optimizer::master_of(const StateSegment& segment) const {
  return segment.column(std::ssize(state_->columns()) - 1);
}

double Optimizer::add_squares(const ParameterSet& gradients, std::int64_t begin, std::int64_t end,
                              double before) {
  Device& device = weights_.device();
  const View sum(norm_->data(), DType::kF64, {1});
  device.copy_from_host(sum.data(), &before, sum.bytes());
  for (std::int64_t i = begin; i < end; ++i)
    if (weights_.specs()[static_cast<std::size_t>(i)].trainable)
      ops::sum_of_squares(device.stream(), {gradients.view(i), sum});
  double squares = 0;
  device.copy_to_host(&squares, sum.data(), sum.bytes());
  return squares;
}

double Optimizer::gradient_norm(const ParameterSet& gradients) {
  return std::sqrt(add_squares(gradients, 0, gradients.size(), 0));
}

std::string Optimizer::first_nonfinite(const ParameterSet& gradients) {
  for (std::int64_t i = gradients.size() - 1; i >= 0; --i)
    if (!std::isfinite(add_squares(gradients, i, i + 1, 0)))
      return gradients.specs()[static_cast<std::size_t>(i)].name;
  return "";
}

std::vector<double> Optimizer::piece_squares(const GradientOf& gradient_of,
                                             const std::vector<ParameterPiece>& pieces) {
  Device& device = weights_.device();
  const View sum(norm_->data(), DType::kF64, {1});
  std::vector<double> squares;
  for (const ParameterPiece& piece : pieces) {
    const std::int64_t first =
        piece.first - shard_.first[static_cast<std::size_t>(piece.parameter)];
    ops::zero(device.stream(), {sum});
    ops::sum_of_squares(device.stream(),
                        {part_of(gradient_of(piece.parameter), first, piece.elements), sum});
    device.copy_to_host(&squares.emplace_back(), sum.data(), sum.bytes());
  }
  return squares;
}

void Optimizer::update(const GradientOf& gradient_of, double learning_rate, double gradient_scale,
                       std::int64_t step) {
  state_->visit([&](const StateSegment& segment) {
    const auto i = static_cast<std::size_t>(segment.parameter);
    const View weight =
        part_of(weights_.view(segment.parameter), first_of(segment), segment.elements);
    ops::AdamW args;
    args.g = part_of(gradient_of(segment.parameter), segment.first, segment.elements);
    const bool coded = !segment.column(kFirstMoment).present();
    args.m = segment.column(coded ? kFirstCode : kFirstMoment);
    args.v = segment.column(coded ? kSecondCode : kSecondMoment);
    if (coded) {
      args.m_absmax = segment.column(kFirstAbsmax);
      args.v_absmax = segment.column(kSecondAbsmax);
    }
    if (has_masters_)
      args.master = master_of(segment);
    else if (weight.dtype() == DType::kF32)
      args.master = weight;
    if (has_masters_ || weight.dtype() != DType::kF32) args.weight = weight;
    args.rounding_key =
        weight_rounding_key(seed_, step, number_of(weights_.specs(), segment.parameter));
    args.first_element = first_of(segment);
    const ParameterSpec& spec = weights_.specs()[i];
    args.lr = learning_rate * spec.rate;
    args.beta1 = options_.beta1;
    args.beta2 = options_.beta2;
    args.eps = options_.epsilon;
    args.weight_decay = spec.weight_decay.value_or(spec.decay ? options_.weight_decay : 0.0);
    args.grad_scale = gradient_scale;
    args.step = step;
    ops::adamw(weights_.device().stream(), args);
  });
}

}  // namespace longstride
