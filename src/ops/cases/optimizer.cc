#include "ops/optimizer.h"

#include <cmath>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

Problem sum_problem(std::int64_t n) {
  Problem p;
  p.input("g", DType::kF32, {n});
  p.update("sum", DType::kF64, {1}, 1e-12);
  p.run = [](Stream& stream, const Bound& v) {
    sum_of_squares(stream, {.g = v("g"), .sum_1 = v("sum")});
  };
  p.reference = [](Values& v) {
    for (double g : v["g"]) v["sum"][0] += g * g;
  };
  p.bytes = static_cast<double>(4 * n);
  return p;
}

// With a weight type of F32 there is no copy: the weight is the master.
Problem adamw_problem(std::int64_t n, DType weight, std::int64_t step) {
  Problem p;
  p.input("g", DType::kF32, {n});
  p.in_place("master", DType::kF32, {n});
  p.in_place("m", DType::kF32, {n});
  HostTensor& second = p.in_place("v", DType::kF32, {n});
  for (std::int64_t i = 0; i < n; ++i) second.set(i, step == 1 ? 0 : std::fabs(second.get(i)));
  if (weight != DType::kF32)
    p.output("weight", weight, {n}, weight == DType::kBF16 ? 0x1p-8 : 0x1p-11);
  AdamW a;
  a.lr = 0.05;  // large, so that a wrong update shows
  a.weight_decay = 0.1;
  a.grad_scale = 0.7;
  a.step = step;
  p.run = [=](Stream& stream, const Bound& v) {
    AdamW args = a;
    args.g = v("g");
    args.master = v("master");
    args.m = v("m");
    args.v = v("v");
    args.weight = v("weight");
    adamw(stream, args);
  };
  p.reference = [=](Values& values) {
    for (std::int64_t i = 0; i < n; ++i) {
      double &m = values["m"][i], &v = values["v"][i], &x = values["master"][i];
      const double g = a.grad_scale * values["g"][i];
      m = a.beta1 * m + (1 - a.beta1) * g;
      v = a.beta2 * v + (1 - a.beta2) * g * g;
      const double c1 = 1 - std::pow(a.beta1, step), c2 = 1 - std::pow(a.beta2, step);
      x = x * (1 - a.lr * a.weight_decay) - a.lr * (m / c1) / (std::sqrt(v / c2) + a.eps);
      if (weight != DType::kF32) values["weight"][i] = x;
    }
  };
  p.bytes = static_cast<double>(n * (28 + (weight == DType::kF32 ? 0 : size_of(weight))));
  return p;
}

}  // namespace

std::vector<OpCase> optimizer_cases() {
  OpCase sum{"sum_of_squares", {}, {}}, adamw{"adamw", {}, {}};
  for (std::int64_t n : {1, 1000, 40001, 4300000}) {
    sum.tests.push_back({fmt::format("n={}", n), [=] { return sum_problem(n); }});
  }
  for (std::int64_t n : {1, 40001}) {
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (std::int64_t step : {1, 10}) {
        adamw.tests.push_back({fmt::format("n={} {} step {}", n, name_of(t), step),
                               [=] { return adamw_problem(n, t, step); }});
      }
    }
  }
  constexpr std::int64_t kReal = 1 << 22;
  sum.benchmarks = {{fmt::format("n={}", kReal), [] { return sum_problem(kReal); }}};
  for (DType t : {DType::kF32, DType::kBF16}) {
    adamw.benchmarks.push_back(
        {fmt::format("n={} {}", kReal, name_of(t)), [=] { return adamw_problem(kReal, t, 10); }});
  }
  constexpr std::int64_t kLarge = std::int64_t{3584} * 18944;
  sum.benchmarks16 = {{fmt::format("n={}", kLarge), [] { return sum_problem(kLarge); }}};
  adamw.benchmarks16 = {
      {fmt::format("n={} BF16", kLarge), [] { return adamw_problem(kLarge, DType::kBF16, 10); }}};
  return {sum, adamw};
}

}  // namespace longstride::ops
