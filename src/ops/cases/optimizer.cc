#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>

#include "ops/cases/registry.h"
#include "tensor/dynamic_code.h"

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

// What an update of AdamW changes.
struct AdamWKind {
  DType weight = DType::kF32;  // F32: there is no copy, the weight is the master
  bool master = true;          // false: the weight is rounded stochastically
  bool coded = false;          // moments in 8 bits

  std::string label() const {
    return fmt::format("{}{}{}", name_of(weight), master ? "" : " without master",
                       coded ? " 8 bits" : "");
  }
  std::int64_t bytes() const {  // read and written, per element
    const std::int64_t moments = coded ? 2 : 8;
    return 4 + 2 * moments +
           (master ? 8 + (weight == DType::kF32 ? 0 : size_of(weight)) : 2 * size_of(weight));
  }
};

std::int64_t blocks_of(std::int64_t n) { return (n + kCodeBlock - 1) / kCodeBlock; }

// Moments before the update, as F32 or as codes.
void add_moments(Problem& p, std::int64_t n, bool coded, std::int64_t step) {
  if (!coded) {
    p.in_place("m", DType::kF32, {n});
    HostTensor& second = p.in_place("v", DType::kF32, {n});
    for (std::int64_t i = 0; i < n; ++i) second.set(i, step == 1 ? 0 : std::fabs(second.get(i)));
    return;
  }
  for (const char* name : {"m", "v"}) {
    HostTensor& codes = p.in_place(name, DType::kU8, {n});
    Random random(7, name[0]);
    for (std::int64_t i = 0; i < n; ++i)
      codes.set(i, step == 1 ? 0 : static_cast<double>(random.below(256)));
    p.arguments.back().tolerance = 1.0 / 200;  // the neighbouring code
    HostTensor& absmax = p.in_place(std::string(name) + "_absmax", DType::kF32, {blocks_of(n)});
    for (std::int64_t i = 0; i < blocks_of(n); ++i)
      absmax.set(i, step == 1 ? 0 : std::fabs(absmax.get(i)));
  }
}

// The moments in double, and back.
template <bool kSigned>
std::vector<double> decoded(const DynamicCode<kSigned>& code, const std::vector<double>& codes,
                            const std::vector<double>& absmax) {
  std::vector<double> values;
  for (std::size_t i = 0; i < codes.size(); ++i)
    values.push_back(double{code.values[static_cast<std::size_t>(codes[i])]} *
                     absmax[i / std::size_t{kCodeBlock}]);
  return values;
}

template <bool kSigned>
void encode(const DynamicCode<kSigned>& code, const std::vector<double>& values,
            std::vector<double>& codes, std::vector<double>& absmax) {
  absmax.assign(absmax.size(), 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& largest = absmax[i / std::size_t{kCodeBlock}];
    largest = std::max(largest, std::fabs(values[i]));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i] / std::max(1e-38, absmax[i / std::size_t{kCodeBlock}]);
    std::size_t nearest = 0;
    for (std::size_t c = 1; c < code.values.size(); ++c)
      if (std::fabs(x - code.values[c]) < std::fabs(x - code.values[nearest])) nearest = c;
    codes[i] = static_cast<double>(nearest);
  }
}

Problem adamw_problem(std::int64_t n, const AdamWKind& kind, std::int64_t step) {
  const DType weight = kind.weight;
  Problem p;
  p.input("g", DType::kF32, {n});
  if (kind.master) p.in_place("master", DType::kF32, {n});
  add_moments(p, n, kind.coded, step);
  const double ulp = weight == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  if (!kind.master) {
    p.in_place("weight", weight, {n});
    p.arguments.back().tolerance = 2 * ulp;  // either neighbour
  } else if (weight != DType::kF32) {
    p.output("weight", weight, {n}, ulp);
  }
  AdamW a;
  a.lr = 0.05;  // large, so that a wrong update shows
  a.weight_decay = 0.1;
  a.grad_scale = 0.7;
  a.step = step;
  a.rounding_key = 5;
  a.first_element = 512;
  p.run = [=](Stream& stream, const Bound& v) {
    AdamW args = a;
    args.g = v("g");
    args.master = v("master");
    args.m = v("m");
    args.v = v("v");
    args.m_absmax = v("m_absmax");
    args.v_absmax = v("v_absmax");
    args.weight = v("weight");
    adamw(stream, args);
  };
  p.reference = [=](Values& values) {
    std::vector<double> first = values["m"], second = values["v"];
    if (kind.coded) {
      first = decoded(kSignedCode, values["m"], values["m_absmax"]);
      second = decoded(kUnsignedCode, values["v"], values["v_absmax"]);
    }
    std::vector<double>& x = values[kind.master ? "master" : "weight"];
    for (std::size_t i = 0; i < first.size(); ++i) {
      double &m = first[i], &v = second[i];
      const double g = a.grad_scale * values["g"][i];
      m = a.beta1 * m + (1 - a.beta1) * g;
      v = a.beta2 * v + (1 - a.beta2) * g * g;
      const double c1 = 1 - std::pow(a.beta1, step), c2 = 1 - std::pow(a.beta2, step);
      x[i] = x[i] * (1 - a.lr * a.weight_decay) - a.lr * (m / c1) / (std::sqrt(v / c2) + a.eps);
    }
    if (kind.coded) {
      encode(kSignedCode, first, values["m"], values["m_absmax"]);
      encode(kUnsignedCode, second, values["v"], values["v_absmax"]);
    } else {
      values["m"] = first;
      values["v"] = second;
    }
    if (kind.master && weight != DType::kF32) values["weight"] = values["master"];
  };
  p.bytes = static_cast<double>(n * kind.bytes());
  return p;
}

}  // namespace

std::vector<OpCase> optimizer_cases() {
  OpCase sum{"sum_of_squares", {}, {}}, adamw{"adamw", {}, {}};
  for (std::int64_t n : {1, 1000, 40001, 4300000}) {
    sum.tests.push_back({fmt::format("n={}", n), [=] { return sum_problem(n); }});
  }
  std::vector<AdamWKind> kinds;
  for (const bool coded : {false, true}) {
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
      kinds.push_back({t, true, coded});
      if (t != DType::kF32) kinds.push_back({t, false, coded});
    }
  }
  for (std::int64_t n : {1, 40001}) {
    for (const AdamWKind& kind : kinds) {
      for (std::int64_t step : {1, 10}) {
        adamw.tests.push_back({fmt::format("n={} {} step {}", n, kind.label(), step),
                               [=] { return adamw_problem(n, kind, step); }});
      }
    }
  }
  constexpr std::int64_t kReal = 1 << 22;
  sum.benchmarks = {{fmt::format("n={}", kReal), [] { return sum_problem(kReal); }}};
  constexpr std::int64_t kLarge = std::int64_t{3584} * 18944;
  sum.benchmarks16 = {{fmt::format("n={}", kLarge), [] { return sum_problem(kLarge); }}};
  for (const AdamWKind& kind : kinds) {
    if (kind.weight == DType::kF16) continue;
    adamw.benchmarks.push_back({fmt::format("n={} {}", kReal, kind.label()),
                                [=] { return adamw_problem(kReal, kind, 10); }});
    if (kind.weight == DType::kF32) continue;
    adamw.benchmarks16.push_back({fmt::format("n={} {}", kLarge, kind.label()),
                                  [=] { return adamw_problem(kLarge, kind, 10); }});
  }
  return {sum, adamw};
}

}  // namespace longstride::ops
