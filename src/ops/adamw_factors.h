// AdamW's per-element factors, for every backend.
#pragma once

#include <cmath>

#include "ops/optimizer.h"

namespace longstride::ops {

// Rounded once from double.
struct AdamWFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, keep, step, root_scale, eps;
};

inline AdamWFactors adamw_factors(const AdamW& args) {
  const double c1 = 1.0 - std::pow(args.beta1, static_cast<double>(args.step));
  const double c2 = 1.0 - std::pow(args.beta2, static_cast<double>(args.step));
  return {.grad_scale = static_cast<float>(args.grad_scale),
          .beta1 = static_cast<float>(args.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
          .beta2 = static_cast<float>(args.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
          .keep = static_cast<float>(1.0 - args.lr * args.weight_decay),
          .step = static_cast<float>(args.lr / c1),
          .root_scale = static_cast<float>(1.0 / std::sqrt(c2)),
          .eps = static_cast<float>(args.eps)};
}

}  // namespace longstride::ops
