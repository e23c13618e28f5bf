#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/optimizer.h"

namespace longstride {
namespace {

bool needs_masters(const std::vector<DType>& dtypes) {
  return std::any_of(dtypes.begin(), dtypes.end(), [](DType t) { return t != DType::kF32; });
}

}  // namespace

Optimizer::Optimizer(const ModelConfig& config, ParameterSet& weights,
                     const OptimizerConfig& options)
    : weights_(weights),
      options_(options),
      first_(weights.device(), config, DType::kF32, "first moments"),
      second_(weights.device(), config, DType::kF32, "second moments"),
      norm_(weights.device().allocate(size_of(DType::kF64), "gradient norm")) {
  if (!needs_masters(weights.dtypes())) return;
  masters_ =
      std::make_unique<ParameterSet>(weights.device(), config, DType::kF32, "master weights");
  for (std::int64_t i = 0; i < weights.size(); ++i)
    ops::convert(weights.device().stream(), {weights.view(i), masters_->view(i)});
}

std::int64_t Optimizer::bytes_needed(const ModelConfig& config,
                                     const std::vector<DType>& weight_dtypes) {
  return (needs_masters(weight_dtypes) ? 3 : 2) * ParameterSet::bytes_needed(config, DType::kF32);
}

double Optimizer::norm_of(const ParameterSet& gradients, std::int64_t begin, std::int64_t end) {
  Device& device = weights_.device();
  const View sum(norm_->data(), DType::kF64, {1});
  device.zero(sum.data(), sum.bytes());
  for (std::int64_t i = begin; i < end; ++i)
    ops::sum_of_squares(device.stream(), {gradients.view(i), sum});
  double squares = 0;
  device.copy_to_host(&squares, sum.data(), sum.bytes());
  return std::sqrt(squares);
}

double Optimizer::gradient_norm(const ParameterSet& gradients) {
  return norm_of(gradients, 0, gradients.size());
}

std::string Optimizer::first_nonfinite(const ParameterSet& gradients) {
  for (std::int64_t i = gradients.size() - 1; i >= 0; --i)
    if (!std::isfinite(norm_of(gradients, i, i + 1)))
      return gradients.specs()[static_cast<std::size_t>(i)].name;
  return "";
}

void Optimizer::update(const ParameterSet& gradients, double learning_rate, double gradient_scale,
                       std::int64_t step) {
  for (std::int64_t i = 0; i < weights_.size(); ++i) {
    ops::AdamW args;
    args.g = gradients.view(i);
    args.m = first_.view(i);
    args.v = second_.view(i);
    args.master = masters_ ? masters_->view(i) : weights_.view(i);
    if (masters_) args.weight = weights_.view(i);
    args.lr = learning_rate;
    args.beta1 = options_.beta1;
    args.beta2 = options_.beta2;
    args.eps = options_.epsilon;
    args.weight_decay =
        weights_.specs()[static_cast<std::size_t>(i)].decay ? options_.weight_decay : 0.0;
    args.grad_scale = gradient_scale;
    args.step = step;
    ops::adamw(weights_.device().stream(), args);
  }
}

std::int64_t Optimizer::bytes() const {
  return first_.bytes() + second_.bytes() + (masters_ ? masters_->bytes() : 0);
}

}  // namespace longstride
