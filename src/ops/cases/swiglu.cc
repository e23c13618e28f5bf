#include "ops/swiglu.h"

#include <algorithm>
#include <cmath>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

double silu_derivative(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

// Large gates must not overflow, and small ones must not vanish.
void add_extremes(HostTensor& gate) {
  const double extremes[] = {-1e4, -100, -88, -1e-6, 0, 1e-6, 88, 100, 1e4};
  for (std::int64_t i = 0; i < std::min<std::int64_t>(9, gate.elements()); ++i)
    gate.set(i, extremes[i]);
}

Problem forward_problem(std::int64_t T, std::int64_t F) {
  Problem p;
  add_extremes(p.input("gate", DType::kF32, {T, F}, 8));
  p.input("up", DType::kF32, {T, F});
  p.output("y", DType::kF32, {T, F});
  p.run = [](Stream& stream, const Bound& v) {
    swiglu_forward(stream, {.gate_TF = v("gate"), .up_TF = v("up"), .y_TF = v("y")});
  };
  p.reference = [](Values& v) {
    const std::vector<double>&gate = v["gate"], &up = v["up"];
    for (std::size_t i = 0; i < gate.size(); ++i) v["y"][i] = silu(gate[i]) * up[i];
  };
  p.bytes = static_cast<double>(12 * T * F);
  return p;
}

// In place, the gradients overwrite gate and up.
Problem backward_problem(std::int64_t T, std::int64_t F, bool in_place) {
  Problem p;
  p.input("dy", DType::kF32, {T, F});
  if (in_place) {
    p.in_place("gate", DType::kF32, {T, F}, 8);
    p.in_place("up", DType::kF32, {T, F});
  } else {
    p.input("gate", DType::kF32, {T, F}, 8);
    p.input("up", DType::kF32, {T, F});
    p.output("dgate", DType::kF32, {T, F});
    p.output("dup", DType::kF32, {T, F});
  }
  const std::string dgate = in_place ? "gate" : "dgate", dup = in_place ? "up" : "dup";
  p.run = [=](Stream& stream, const Bound& v) {
    swiglu_backward(stream, {.dy_TF = v("dy"),
                             .gate_TF = v("gate"),
                             .up_TF = v("up"),
                             .dgate_TF = v(dgate),
                             .dup_TF = v(dup)});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> dy = v["dy"], gate = v["gate"], up = v["up"];
    for (std::size_t i = 0; i < dy.size(); ++i) {
      v[dgate][i] = dy[i] * up[i] * silu_derivative(gate[i]);
      v[dup][i] = dy[i] * silu(gate[i]);
    }
  };
  p.loss = [](const Values& v) {
    const std::vector<double>&dy = v.at("dy"), &gate = v.at("gate"), &up = v.at("up");
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * silu(gate[i]) * up[i];
    return sum;
  };
  p.gradients = {{"gate", dgate}, {"up", dup}};
  p.bytes = static_cast<double>(20 * T * F);
  return p;
}

std::string label(std::int64_t T, std::int64_t F) { return fmt::format("T={} F={}", T, F); }

}  // namespace

std::vector<OpCase> swiglu_cases() {
  OpCase forward{"swiglu_forward", {}, {}}, backward{"swiglu_backward", {}, {}};
  for (auto [T, F] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 37}, {70, 500}}) {
    forward.tests.push_back({label(T, F), [T = T, F = F] { return forward_problem(T, F); }});
    backward.tests.push_back(
        {label(T, F), [T = T, F = F] { return backward_problem(T, F, false); }});
    backward.tests.push_back(
        {label(T, F) + " in place", [T = T, F = F] { return backward_problem(T, F, true); }});
  }
  forward.benchmarks = {{label(1024, 1536), [] { return forward_problem(1024, 1536); }}};
  backward.benchmarks = {{label(1024, 1536), [] { return backward_problem(1024, 1536, false); }}};
  const auto forward16 = [](std::int64_t T, std::int64_t F) {
    Problem p = in_bf16(forward_problem(T, F), {"gate", "up", "y"});
    p.bytes /= 2;
    return p;
  };
  const auto backward16 = [](std::int64_t T, std::int64_t F, bool in_place) {
    Problem p =
        in_bf16(backward_problem(T, F, in_place), {"dy", "gate", "up", "dgate", "dup"}, 0x1p-8);
    p.bytes /= 2;
    return p;
  };
  for (auto [T, F] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 37}, {70, 504}}) {
    forward.tests16.push_back({label(T, F), [=, T = T, F = F] { return forward16(T, F); }});
    for (bool in_place : {false, true})
      backward.tests16.push_back({label(T, F) + (in_place ? " in place" : ""),
                                  [=, T = T, F = F] { return backward16(T, F, in_place); }});
  }
  forward.benchmarks16 = {{label(4096, 18944), [=] { return forward16(4096, 18944); }}};
  backward.benchmarks16 = {{label(4096, 18944), [=] { return backward16(4096, 18944, true); }}};
  return {forward, backward};
}

}  // namespace longstride::ops
