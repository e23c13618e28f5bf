#include "ops/loss_head.h"

#include <algorithm>
#include <cmath>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

constexpr float kScale = 0.25f;

struct Size {
  std::int64_t T, V, D, block_rows;
};
struct Options {
  DType dtype = DType::kF32;
  bool gradients = true;
  bool whole_numbers = false;  // small ones, so that logits are exact and ties happen
  DType compute = DType::kF32;
  bool weighted = false, ratios = false;
};
constexpr RatioClip kClip{0.2f, 0.28f};

std::string label(const Size& s, const Options& o) {
  return fmt::format("T={} V={} D={} block={} {}{}{}{}", s.T, s.V, s.D, s.block_rows,
                     name_of(o.dtype), o.gradients ? "" : " no gradients",
                     o.whole_numbers ? " ties" : "",
                     o.ratios     ? " clipped ratios"
                     : o.weighted ? " weighted"
                                  : "");
}

std::vector<double> logits_of(const Values& v, const Size& s, std::int64_t t) {
  std::vector<double> logits(static_cast<std::size_t>(s.V), 0.0);
  const std::vector<double>&x = v.at("x"), &w = v.at("w");
  for (std::int64_t k = 0; k < s.V; ++k) {
    for (std::int64_t i = 0; i < s.D; ++i) logits[k] += x[t * s.D + i] * w[k * s.D + i];
  }
  return logits;
}

double log_sum_exp(const std::vector<double>& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double value : x) sum += std::exp(value - top);
  return top + std::log(sum);
}

// The weight of target t in the gradient.
double weight_of(const Values& v, std::int64_t t, double log_p) {
  if (!v.contains("weights")) return 1;
  const double weight = v.at("weights")[t];
  if (!v.contains("earlier")) return weight;
  const double ratio = std::exp(log_p - v.at("earlier")[t]);
  const bool held = weight >= 0 ? ratio > 1 + static_cast<double>(kClip.above)
                                : ratio < 1 - static_cast<double>(kClip.below);
  return held ? 0 : weight * ratio;
}

// Its part of the objective.
double objective_of(const Values& v, std::int64_t t, double log_p) {
  if (!v.contains("weights")) return -log_p;
  const double weight = v.at("weights")[t];
  if (!v.contains("earlier")) return -log_p * weight;
  const double ratio = std::exp(log_p - v.at("earlier")[t]),
               bounded = std::clamp(ratio, 1 - static_cast<double>(kClip.below),
                                    1 + static_cast<double>(kClip.above));
  return -std::min(ratio * weight, bounded * weight);
}

void reference(Values& v, const Size& s, const Options& o) {
  const std::vector<double>&x = v["x"], &w = v["w"];
  std::vector<double>&dx = v["dx"], &dw = v["dw"];  // both empty if there are no gradients
  std::fill(dx.begin(), dx.end(), 0.0);
  for (std::int64_t t = 0; t < s.T; ++t) {
    const auto target = static_cast<std::int64_t>(v["targets"][t]);
    v["losses"][t] = v["correct"][t] = 0;
    if (target < 0) continue;
    const std::vector<double> logits = logits_of(v, s, t);
    const double lse = log_sum_exp(logits);
    v["losses"][t] = lse - logits[target];
    const auto argmax = std::max_element(logits.begin(), logits.end()) - logits.begin();
    v["correct"][t] = argmax == target ? 1 : 0;
    if (!o.gradients) continue;
    for (std::int64_t k = 0; k < s.V; ++k) {
      const double d = static_cast<double>(kScale) * weight_of(v, t, logits[target] - lse) *
                       (std::exp(logits[k] - lse) - (k == target ? 1 : 0));
      for (std::int64_t i = 0; i < s.D; ++i) {
        dx[t * s.D + i] += d * w[k * s.D + i];
        dw[k * s.D + i] += d * x[t * s.D + i];
      }
    }
  }
}

// Every third target is masked, and so is all of the second block; another third is the model's own
// prediction.
void set_targets(Problem& p, const Size& s) {
  Values v;
  for (const Argument& a : p.arguments) {
    for (std::int64_t i = 0; i < a.tensor.elements(); ++i) v[a.name].push_back(a.tensor.get(i));
  }
  HostTensor& targets = p.input("targets", DType::kI32, {s.T});
  for (std::int64_t t = 0; t < s.T; ++t) {
    const bool masked = t % 3 == 1 || t / s.block_rows == 1;
    std::int64_t target = t * 31 % s.V;
    if (t % 3 == 2) {
      const std::vector<double> logits = logits_of(v, s, t);
      target = std::max_element(logits.begin(), logits.end()) - logits.begin();
    }
    targets.set(t, masked ? -1 - static_cast<double>(t % 100) : static_cast<double>(target));
  }
}

// Weights of both signs and 0; ratios to the earlier probabilities of all sizes, none of them near
// a bound of the clip, where a rounding error would decide.
void set_weights(Problem& p, const Size& s, bool ratios) {
  Values v;
  for (const Argument& a : p.arguments)
    for (std::int64_t i = 0; i < a.tensor.elements(); ++i) v[a.name].push_back(a.tensor.get(i));
  HostTensor& weights = p.input("weights", DType::kF32, {s.T});
  for (std::int64_t t = 0; t < s.T; ++t)
    weights.set(t, t % 7 == 0 ? 0 : static_cast<double>(t % 5 - 2) * 0.75);
  if (!ratios) return;
  constexpr double kRatios[] = {0.5, 0.9, 1.0, 1.1, 1.5};
  HostTensor& earlier = p.input("earlier", DType::kF32, {s.T});
  for (std::int64_t t = 0; t < s.T; ++t) {
    const auto target = static_cast<std::int64_t>(v["targets"][t]);
    if (target < 0) continue;
    const std::vector<double> logits = logits_of(v, s, t);
    earlier.set(t, logits[target] - log_sum_exp(logits) - std::log(kRatios[t / 5 % 5]));
  }
}

Problem make_problem(Size s, Options o, bool for_benchmark = false) {
  Problem p;
  HostTensor& x = p.input("x", DType::kF32, {s.T, s.D}, for_benchmark ? 1 : 4);
  if (o.whole_numbers) {
    for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, std::round(x.get(i)));
  }
  HostTensor& w = p.input("w", o.dtype, {s.V, s.D});
  if (o.whole_numbers) {
    for (std::int64_t i = 0; i < w.elements(); ++i) w.set(i, std::round(w.get(i)));
  }
  if (for_benchmark) {
    HostTensor& targets = p.input("targets", DType::kI32, {s.T});
    for (std::int64_t t = 0; t < s.T; ++t) targets.set(t, static_cast<double>(t * 31 % s.V));
  } else {
    set_targets(p, s);
  }
  if (o.weighted) set_weights(p, s, o.ratios);
  p.output("losses", DType::kF32, {s.T});
  p.output("correct", DType::kI32, {s.T}, 0);
  if (o.gradients) {
    p.output("dx", DType::kF32, {s.T, s.D});
    p.update("dw", DType::kF32, {s.V, s.D});
  }
  p.scratch("scratch", [=](const Stream& stream) {
    return loss_head_scratch_elements(
        stream, {s.block_rows, ConstView(nullptr, o.dtype, {s.V, s.D}), o.compute});
  });
  p.run = [=](Stream& stream, const Bound& v) {
    loss_head(stream, {.x_TD = v("x"),
                       .w_VD = v("w"),
                       .targets_T = v("targets"),
                       .losses_T = v("losses"),
                       .correct_T = v("correct"),
                       .dx_TD = v("dx"),
                       .dw_VD = v("dw"),
                       .scale = kScale,
                       .block_rows = s.block_rows,
                       .scratch = v("scratch"),
                       .weights_T = o.weighted ? ConstView(v("weights")) : ConstView(),
                       .earlier_T = o.ratios ? ConstView(v("earlier")) : ConstView(),
                       .clip = kClip});
  };
  p.reference = [=](Values& v) { reference(v, s, o); };
  if (o.gradients) {
    p.loss = [=](const Values& v) {
      double sum = 0;
      for (std::int64_t t = 0; t < s.T; ++t) {
        const auto target = static_cast<std::int64_t>(v.at("targets")[t]);
        if (target < 0) continue;
        const std::vector<double> logits = logits_of(v, s, t);
        sum +=
            static_cast<double>(kScale) * objective_of(v, t, logits[target] - log_sum_exp(logits));
      }
      return sum;
    };
    p.gradients = {{"x", "dx"}, {"w", "dw"}};
    p.optional = {"dw"};
  }
  p.flops = (o.gradients ? 6.0 : 2.0) * static_cast<double>(s.T * s.D) * static_cast<double>(s.V);
  return p;
}

}  // namespace

std::vector<OpCase> loss_head_cases() {
  OpCase op{"loss_head", {}, {}};
  const auto test = [&](Size s, Options o) {
    op.tests.push_back({label(s, o), [=] { return make_problem(s, o); }});
  };
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    test({1, 1, 1, 1}, {t});
    test({37, 300, 20, 8}, {t});
    test({10, 4500, 6, 4}, {t});  // more than one block of the vocabulary
    test({37, 300, 20, 8}, {t, false});
  }
  for (const bool ratios : {false, true}) {
    const Options weighted{.weighted = true, .ratios = ratios};
    test({37, 300, 20, 8}, weighted);
    test({90, 33, 5, 32}, weighted);
  }
  test({37, 300, 20, 8}, {.dtype = DType::kBF16, .gradients = false, .weighted = true});
  test({20, 50, 33, 64}, {});  // a block larger than the chunk
  test({60, 40, 3, 7}, {DType::kF32, true, true});
  const Size real{512, 32768, 512, 128}, wide{256, 151936, 896, 128};
  for (Options o : {Options{}, Options{DType::kBF16}, Options{DType::kF32, false}}) {
    op.benchmarks.push_back({label(real, o), [=] { return make_problem(real, o, true); }});
  }
  op.benchmarks.push_back(
      {label(wide, {DType::kBF16}), [=] { return make_problem(wide, {DType::kBF16}, true); }});
  // In BF16, rounding may reorder nearly equal logits: with whole numbers the largest is certain.
  const Options bf16{DType::kBF16, true, true, DType::kBF16};
  const auto make16 = [](Size s, Options o, bool for_benchmark) {
    return in_bf16(make_problem(s, o, for_benchmark), {"x", "dx"}, 0x1p-6);
  };
  for (Size s : {Size{24, 304, 16, 8}, Size{60, 40, 8, 7}, Size{33, 4504, 24, 16}})
    op.tests16.push_back({label(s, bf16), [=] { return make16(s, bf16, false); }});
  for (const bool ratios : {false, true}) {
    Options weighted = bf16;
    weighted.weighted = true;
    weighted.ratios = ratios;
    const Size s{60, 304, 16, 16};
    op.tests16.push_back({label(s, weighted), [=] { return make16(s, weighted, false); }});
  }
  const Size large{4096, 152064, 3584, 2048};
  const Options real16{DType::kBF16, true, false, DType::kBF16};
  op.benchmarks16.push_back({label(large, real16), [=] { return make16(large, real16, true); }});
  Options weighted16 = real16;
  weighted16.weighted = true;
  op.benchmarks16.push_back(
      {label(large, weighted16), [=] { return make16(large, weighted16, true); }});
  return {op};
}

}  // namespace longstride::ops
