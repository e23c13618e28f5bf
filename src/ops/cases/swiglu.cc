#include "ops/swiglu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

double silu_derivative(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

double gelu(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

double gelu_derivative(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x),
               du = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x),
               s = 1 / (1 + std::exp(-2 * u));
  return s + x * s * (1 - s) * 2 * du;
}

double value_of(Activation a, double x) { return a == Activation::kSilu ? silu(x) : gelu(x); }

double derivative_of(Activation a, double x) {
  return a == Activation::kSilu ? silu_derivative(x) : gelu_derivative(x);
}

// Large gates must not overflow, and small ones must not vanish.
void add_extremes(HostTensor& gate) {
  const double extremes[] = {-1e4, -100, -88, -1e-6, 0, 1e-6, 88, 100, 1e4};
  for (std::int64_t i = 0; i < std::min<std::int64_t>(9, gate.elements()); ++i)
    gate.set(i, extremes[i]);
}

// `more`: columns of y that stay.
Problem forward_problem(std::int64_t T, std::int64_t F, Activation a, std::int64_t more = 0) {
  Problem p;
  add_extremes(p.input("gate", DType::kF32, {T, F}, 8));
  p.input("up", DType::kF32, {T, F});
  if (more > 0)
    p.update("y", DType::kF32, {T, F + more});
  else
    p.output("y", DType::kF32, {T, F});
  p.run = [a](Stream& stream, const Bound& v) {
    swiglu_forward(stream,
                   {.gate_TF = v("gate"), .up_TF = v("up"), .y_TW = v("y"), .activation = a});
  };
  p.reference = [=](Values& v) {
    const std::vector<double>&gate = v["gate"], &up = v["up"];
    for (std::int64_t i = 0; i < T * F; ++i)
      v["y"][i + i / F * more] = value_of(a, gate[i]) * up[i];
  };
  p.bytes = static_cast<double>(12 * T * F);
  return p;
}

// In place, the gradients overwrite gate and up, and the product dy.
Problem backward_problem(std::int64_t T, std::int64_t F, Activation a, bool in_place,
                         bool product) {
  Problem p;
  if (in_place && product)
    p.in_place("dy", DType::kF32, {T, F});
  else
    p.input("dy", DType::kF32, {T, F});
  if (product && !in_place) p.output("y", DType::kF32, {T, F});
  if (in_place) {
    p.in_place("gate", DType::kF32, {T, F}, 8);
    p.in_place("up", DType::kF32, {T, F});
  } else {
    p.input("gate", DType::kF32, {T, F}, 8);
    p.input("up", DType::kF32, {T, F});
    p.output("dgate", DType::kF32, {T, F});
    p.output("dup", DType::kF32, {T, F});
  }
  const std::string dgate = in_place ? "gate" : "dgate", dup = in_place ? "up" : "dup",
                    y = in_place ? "dy" : "y";
  p.run = [=](Stream& stream, const Bound& v) {
    swiglu_backward(stream, {.dy_TF = v("dy"),
                             .gate_TF = v("gate"),
                             .up_TF = v("up"),
                             .dgate_TF = v(dgate),
                             .dup_TF = v(dup),
                             .activation = a,
                             .y_TF = product ? v(y) : View()});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> dy = v["dy"], gate = v["gate"], up = v["up"];
    for (std::size_t i = 0; i < dy.size(); ++i) {
      v[dgate][i] = dy[i] * up[i] * derivative_of(a, gate[i]);
      v[dup][i] = dy[i] * value_of(a, gate[i]);
      if (product) v[y][i] = value_of(a, gate[i]) * up[i];
    }
  };
  p.loss = [a](const Values& v) {
    const std::vector<double>&dy = v.at("dy"), &gate = v.at("gate"), &up = v.at("up");
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * value_of(a, gate[i]) * up[i];
    return sum;
  };
  p.gradients = {{"gate", dgate}, {"up", dup}};
  p.bytes = static_cast<double>((product ? 24 : 20) * T * F);
  return p;
}

std::string label(std::int64_t T, std::int64_t F, Activation a, bool in_place = false,
                  std::int64_t more = 0, bool product = false) {
  return fmt::format("T={} F={}{}{}{}{}", T, F, more > 0 ? fmt::format("+{}", more) : "",
                     a == Activation::kSilu ? "" : " gelu", in_place ? " in place" : "",
                     product ? " and product" : "");
}

}  // namespace

std::vector<OpCase> swiglu_cases() {
  OpCase forward{"swiglu_forward", {}, {}}, backward{"swiglu_backward", {}, {}};
  using Size = std::pair<std::int64_t, std::int64_t>;
  const auto forward16 = [](std::int64_t T, std::int64_t F, Activation a, std::int64_t more) {
    Problem p = in_bf16(forward_problem(T, F, a, more), {"gate", "up", "y"});
    p.bytes /= 2;
    return p;
  };
  const auto backward16 = [](std::int64_t T, std::int64_t F, Activation a, bool in_place,
                             bool product) {
    Problem p = in_bf16(backward_problem(T, F, a, in_place, product),
                        {"dy", "gate", "up", "dgate", "dup", "y"}, 0x1p-8);
    p.bytes /= 2;
    return p;
  };
  for (const Activation a : {Activation::kSilu, Activation::kTanhGelu}) {
    for (auto [T, F] : {Size{1, 1}, {3, 37}, {70, 500}}) {
      for (const std::int64_t more : {0, 3, 8})
        forward.tests.push_back({label(T, F, a, false, more),
                                 [=, T = T, F = F] { return forward_problem(T, F, a, more); }});
      for (bool in_place : {false, true})
        for (bool product : {false, true})
          backward.tests.push_back({label(T, F, a, in_place, 0, product), [=, T = T, F = F] {
                                      return backward_problem(T, F, a, in_place, product);
                                    }});
    }
    for (auto [T, F] : {Size{1, 1}, {3, 37}, {70, 504}}) {
      for (const std::int64_t more : {0, 3, 8})
        forward.tests16.push_back(
            {label(T, F, a, false, more), [=, T = T, F = F] { return forward16(T, F, a, more); }});
      for (bool in_place : {false, true})
        for (bool product : {false, true})
          backward.tests16.push_back({label(T, F, a, in_place, 0, product), [=, T = T, F = F] {
                                        return backward16(T, F, a, in_place, product);
                                      }});
    }
    forward.benchmarks.push_back(
        {label(1024, 1536, a), [=] { return forward_problem(1024, 1536, a); }});
    backward.benchmarks.push_back(
        {label(1024, 1536, a), [=] { return backward_problem(1024, 1536, a, false, false); }});
    forward.benchmarks16.push_back(
        {label(4096, 18944, a), [=] { return forward16(4096, 18944, a, 0); }});
    forward.benchmarks16.push_back(
        {label(4096, 18944, a, false, 16), [=] { return forward16(4096, 18944, a, 16); }});
    for (bool product : {false, true})
      backward.benchmarks16.push_back({label(4096, 18944, a, true, 0, product),
                                       [=] { return backward16(4096, 18944, a, true, product); }});
  }
  return {forward, backward};
}

}  // namespace longstride::ops
