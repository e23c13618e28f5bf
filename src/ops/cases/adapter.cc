#include "ops/adapter.h"

#include "ops/cases/registry.h"
#include "tensor/dropout_mask.h"

namespace longstride::ops {
namespace {

struct Size {
  std::int64_t T, I, O, R, P;  // as in ops/adapter.h
  double rate = 0;
  std::int64_t W() const { return I + P; }
};

std::string label(const Size& s) {
  return fmt::format("T={} I={} O={} R={} P={}{}", s.T, s.I, s.O, s.R, s.P,
                     s.rate > 0 ? fmt::format(" dropout {}", s.rate) : "");
}

constexpr std::uint64_t kKey = 1234567;
constexpr std::int64_t kFirst = 100;

Dropout dropout_of(const Size& s) { return {kKey, kFirst, s.rate}; }

// Factors of [T, I].
std::vector<double> mask_of(const Size& s) {
  const DropoutMask mask(kKey, s.rate);
  std::vector<double> factors;
  for (std::int64_t t = 0; t < s.T; ++t)
    for (std::int64_t i = 0; i < s.I; ++i)
      factors.push_back(static_cast<double>(mask.factor(mask.row(kFirst + t), i)));
  return factors;
}

Problem dropout_problem(Size s) {
  Problem p;
  p.input("x", DType::kF32, {s.T, s.W()});
  p.output("y", DType::kF32, {s.T, s.I});
  p.run = [=](Stream& stream, const Bound& v) {
    dropout_forward(stream, {v("x"), v("y"), dropout_of(s)});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> mask = mask_of(s);
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t i = 0; i < s.I; ++i)
        v["y"][t * s.I + i] = v["x"][t * s.W() + i] * mask[t * s.I + i];
  };
  p.bytes = static_cast<double>(8 * s.T * s.I);
  return p;
}

// `copies`: x is an argument of its own. `dropped`: u is made of another tensor than x.
Problem forward_problem(Size s, bool copies, bool dropped) {
  Problem p;
  if (copies) p.input("x", DType::kF32, {s.T, s.I});
  if (dropped) p.input("dropped", DType::kF32, {s.T, s.I});
  p.input("a", DType::kF32, {s.P, s.I});
  if (copies)
    p.output("xu", DType::kF32, {s.T, s.W()});
  else
    p.in_place("xu", DType::kF32, {s.T, s.W()});
  p.run = [](Stream& stream, const Bound& v) {
    adapter_forward(stream, {v("x"), v("dropped"), v("a"), v("xu")});
  };
  p.reference = [=](Values& v) {
    std::vector<double>& xu = v["xu"];
    for (std::int64_t t = 0; t < s.T; ++t) {
      double* const row = xu.data() + t * s.W();
      if (copies)
        for (std::int64_t i = 0; i < s.I; ++i) row[i] = v["x"][t * s.I + i];
      for (std::int64_t r = 0; r < s.P; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < s.I; ++i)
          sum += (dropped ? v["dropped"][t * s.I + i] : row[i]) * v["a"][r * s.I + i];
        row[s.I + r] = sum;
      }
    }
  };
  p.flops = 2.0 * static_cast<double>(s.T * s.I * s.P);
  return p;
}

Problem backward_problem(Size s, bool wants_da) {
  Problem p;
  p.input("d", DType::kF32, {s.T, s.W()});
  p.input("xu", DType::kF32, {s.T, s.W()});
  if (s.rate > 0) p.input("dropped", DType::kF32, {s.T, s.I});
  p.input("a", DType::kF32, {s.P, s.I});
  if (wants_da) p.update("da", DType::kF32, {s.R, s.I});
  p.output("dx", DType::kF32, {s.T, s.I});
  p.run = [=](Stream& stream, const Bound& v) {
    adapter_backward(stream,
                     {v("d"), v("xu"), v("dropped"), v("a"), v("da"), v("dx"), dropout_of(s)});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> mask = mask_of(s);
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t i = 0; i < s.I; ++i) {
        double sum = 0;
        for (std::int64_t r = 0; r < s.P; ++r) {
          const double du = v["d"][t * s.W() + s.I + r];
          sum += du * v["a"][r * s.I + i];
          if (wants_da && r < s.R)
            v["da"][r * s.I + i] +=
                du * (s.rate > 0 ? v["dropped"][t * s.I + i] : v["xu"][t * s.W() + i]);
        }
        v["dx"][t * s.I + i] = v["d"][t * s.W() + i] + sum * mask[t * s.I + i];
      }
  };
  p.flops = 2.0 * static_cast<double>(s.T * s.I * (s.P + (wants_da ? s.R : 0)));
  if (wants_da) p.optional = {"da"};
  return p;
}

Problem gradient_problem(Size s, std::int64_t first, double scale) {
  Problem p;
  p.input("dy", DType::kF32, {s.T, s.O});
  p.input("xu", DType::kF32, {s.T, s.W()});
  p.update("db", DType::kF32, {s.O, s.R});
  p.run = [=](Stream& stream, const Bound& v) {
    adapter_gradient(stream, {v("dy"), v("xu"), s.I + first, v("db"), scale});
  };
  p.reference = [=](Values& v) {
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t o = 0; o < s.O; ++o)
        for (std::int64_t r = 0; r < s.R; ++r)
          v["db"][o * s.R + r] +=
              scale * v["dy"][t * s.O + o] * v["xu"][t * s.W() + s.I + first + r];
  };
  p.flops = 2.0 * static_cast<double>(s.T * s.O * s.R);
  return p;
}

Problem place_problem(Size s, std::int64_t first, DType from, DType to) {
  Problem p;
  p.input("from", from, {s.T, s.R});
  p.update("to", to, {s.T, s.W()}, 0);
  p.run = [=](Stream& stream, const Bound& v) {
    place_columns(stream, {v("from"), v("to"), first, 0.5});
  };
  p.reference = [=](Values& v) {
    HostTensor rounded(to, {1});
    for (std::int64_t t = 0; t < s.T; ++t)
      for (std::int64_t r = 0; r < s.R; ++r) {
        rounded.set(0, 0.5 * v["from"][t * s.R + r]);
        v["to"][t * s.W() + first + r] = rounded.get(0);
      }
  };
  p.bytes = static_cast<double>(s.T * s.R * (size_of(from) + size_of(to)));
  return p;
}

// Rank 16 on all projections of Qwen2.5-7B: q/k/v, o, gate/up, down.
constexpr Size kLayer[] = {{4096, 3584, 3584, 16, 48},
                           {4096, 3584, 3584, 16, 16},
                           {4096, 3584, 18944, 16, 32},
                           {4096, 18944, 3584, 16, 16}};
constexpr Size kSmall[] = {
    {1, 1, 1, 1, 8}, {37, 40, 24, 5, 8}, {130, 72, 33, 24, 24}, {70, 530, 600, 64, 64}};

const std::vector<std::string> kActivations = {"x", "xu", "dropped", "a", "d", "dx", "dy", "y"};

void add(OpCase& op, const std::string& name, const std::function<Problem()>& make) {
  op.tests.push_back({name, make});
  op.tests16.push_back({name, [make] { return in_bf16(make(), kActivations); }});
}

}  // namespace

std::vector<OpCase> adapter_cases() {
  OpCase dropout{"dropout_forward", {}, {}}, forward{"adapter_forward", {}, {}},
      backward{"adapter_backward", {}, {}}, gradient{"adapter_gradient", {}, {}},
      place{"place_columns", {}, {}};
  for (Size s : kSmall) {
    for (const bool copies : {false, true})
      for (const bool dropped : {false, true})
        add(forward, label(s) + (copies ? " copies" : "") + (dropped ? " dropped" : ""),
            [=] { return forward_problem(s, copies, dropped); });
    for (const double rate : {0.0, 0.25}) {
      s.rate = rate;
      add(dropout, label(s), [=] { return dropout_problem(s); });
      add(backward, label(s), [=] { return backward_problem(s, true); });
      add(backward, label(s) + " dx only", [=] { return backward_problem(s, false); });
    }
    s.rate = 0;
    add(gradient, label(s), [=] { return gradient_problem(s, 0, 2.0); });
    add(gradient, label(s) + " later columns",
        [=] { return gradient_problem(s, s.P - s.R, 0.125); });
    for (const DType from : {DType::kF32, DType::kBF16})
      for (const DType to : {DType::kF32, DType::kBF16})
        place.tests.push_back({fmt::format("{} {} to {}", label(s), name_of(from), name_of(to)),
                               [=] { return place_problem(s, s.I + s.P - s.R, from, to); }});
  }
  for (const Size& s : kLayer) {
    const auto benchmark = [&](OpCase& op, const std::function<Problem()>& make) {
      op.benchmarks16.push_back({label(s), [make] { return in_bf16(make(), kActivations); }});
    };
    benchmark(forward, [=] { return forward_problem(s, false, false); });
    benchmark(backward, [=] { return backward_problem(s, true); });
    benchmark(gradient, [=] { return gradient_problem(s, 0, 2.0); });
  }
  const Size small{512, 512, 1536, 16, 16};
  forward.benchmarks = {{label(small), [=] { return forward_problem(small, false, false); }}};
  backward.benchmarks = {{label(small), [=] { return backward_problem(small, true); }}};
  gradient.benchmarks = {{label(small), [=] { return gradient_problem(small, 0, 2.0); }}};
  dropout.benchmarks = {{label(small), [=] { return dropout_problem(small); }}};
  place.benchmarks = {
      {label(small), [=] { return place_problem(small, 512, DType::kF32, DType::kF32); }}};
  return {dropout, forward, backward, gradient, place};
}

}  // namespace longstride::ops
