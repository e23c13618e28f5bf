#include "ops/linear.h"

#include <algorithm>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

struct Size {
  std::int64_t R, I, O;
};
struct Options {
  DType dtype = DType::kF32;
  bool bias = false, accumulate = false, add = false;
  DType compute = DType::kF32;
};

std::string label(const Size& s, const Options& o) {
  return fmt::format("R={} I={} O={} {}{}{}", s.R, s.I, s.O, name_of(o.dtype),
                     o.bias ? " bias" : "",
                     o.accumulate ? " +="
                     : o.add      ? " add"
                                  : "") +
         (o.compute == DType::kF32 ? "" : " in BF16");
}

// Products of a chunk in a layer of Qwen2.5-7B.
constexpr Size kLayer[] = {
    {4096, 3584, 3584}, {4096, 3584, 512}, {4096, 3584, 18944}, {4096, 18944, 3584}};
// Those of its loss head, which makes the same calls for a block of rows at a time: logits in the
// type of x, dx, and dw added to in F32. A block has 2048 rows; the second size tests twice as
// many.
constexpr Size kHead[] = {{2048, 3584, 152064}, {4096, 3584, 152064}};

double flops(const Size& s) {
  return 2.0 * static_cast<double>(s.R * s.I) * static_cast<double>(s.O);
}

// y = x W^T + b, plainly.
std::vector<double> apply(const Values& v, const Size& s, bool bias) {
  std::vector<double> y(static_cast<std::size_t>(s.R * s.O));
  const std::vector<double>&x = v.at("x"), &w = v.at("w");
  for (std::int64_t r = 0; r < s.R; ++r) {
    for (std::int64_t o = 0; o < s.O; ++o) {
      double sum = bias ? v.at("b")[o] : 0;
      for (std::int64_t i = 0; i < s.I; ++i) sum += x[r * s.I + i] * w[o * s.I + i];
      y[r * s.O + o] = sum;
    }
  }
  return y;
}

void add_scratch(Problem& p, const Size& s, const Options& o) {
  p.scratch("scratch", [=](const Stream& stream) {
    return linear_scratch_elements(stream,
                                   {s.R, ConstView(nullptr, o.dtype, {s.O, s.I}), o.compute});
  });
}

double tolerance(const Options& o) {
  return o.compute == DType::kF32 ? Problem::kTolerance : Problem::kTolerance16;
}

Problem forward_problem(Size s, Options o) {
  Problem p;
  p.input("x", o.compute, {s.R, s.I});
  p.input("w", o.dtype, {s.O, s.I});
  if (o.bias) p.input("b", o.dtype, {s.O});
  p.output("y", o.compute, {s.R, s.O}, tolerance(o));
  if (o.add) p.input("add", o.compute, {s.R, s.O});
  add_scratch(p, s, o);
  p.run = [=](Stream& stream, const Bound& v) {
    linear_forward(stream, {.x_RI = v("x"),
                            .w_OI = v("w"),
                            .b_O = v("b"),
                            .add_RO = v("add"),
                            .y_RO = v("y"),
                            .scratch = v("scratch")});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> y = apply(v, s, o.bias);
    for (std::size_t i = 0; i < y.size(); ++i) v["y"][i] = y[i] + (o.add ? v["add"][i] : 0);
  };
  p.flops = flops(s);
  return p;
}

// Which gradients are computed; the others are absent.
struct Wanted {
  bool dx = true, dw = true, db = true;
};

Problem backward_problem(Size s, Options o, Wanted wanted) {
  Problem p;
  p.input("dy", o.compute, {s.R, s.O});
  p.input("x", o.compute, {s.R, s.I});
  // Finite differences need more digits than BF16 has; without them, arguments that the call does
  // not read are left out.
  const bool differs = o.compute == DType::kF32;
  if (wanted.dx || differs) p.input("w", o.dtype, {s.O, s.I});
  if (differs) p.input("b", o.dtype, {s.O});
  if (wanted.dx && o.accumulate) p.update("dx", o.compute, {s.R, s.I}, tolerance(o));
  if (wanted.dx && !o.accumulate) p.output("dx", o.compute, {s.R, s.I}, tolerance(o));
  if (wanted.dw) p.update("dw", DType::kF32, {s.O, s.I});
  if (wanted.db) p.update("db", DType::kF32, {s.O});
  add_scratch(p, s, o);
  p.run = [=](Stream& stream, const Bound& v) {
    linear_backward(stream, {.dy_RO = v("dy"),
                             .x_RI = wanted.dw ? v("x") : View(),
                             .w_OI = wanted.dx ? v("w") : View(),
                             .dx_RI = v("dx"),
                             .dw_OI = v("dw"),
                             .db_O = v("db"),
                             .scratch = v("scratch"),
                             .accumulate_dx = o.accumulate});
  };
  p.reference = [=](Values& v) {
    const std::vector<double>&dy = v["dy"], &x = v["x"], &w = v["w"];
    std::vector<double>&dx = v["dx"], &dw = v["dw"], &db = v["db"];
    if (!o.accumulate) std::fill(dx.begin(), dx.end(), 0.0);
    for (std::int64_t r = 0; r < s.R; ++r) {
      for (std::int64_t k = 0; k < s.O; ++k) {
        const double d = dy[r * s.O + k];
        for (std::int64_t i = 0; i < s.I; ++i) {
          if (wanted.dx) dx[r * s.I + i] += d * w[k * s.I + i];
          if (wanted.dw) dw[k * s.I + i] += d * x[r * s.I + i];
        }
        if (wanted.db) db[k] += d;
      }
    }
  };
  if (differs)
    p.loss = [=](const Values& v) {
      const std::vector<double> y = apply(v, s, true);
      const std::vector<double>& dy = v.at("dy");
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
  if (wanted.dx) p.gradients.emplace_back("x", "dx");
  if (wanted.dw) p.gradients.emplace_back("w", "dw");
  if (wanted.db) p.gradients.emplace_back("b", "db");
  if (wanted.dx && wanted.dw && wanted.db) p.optional = {"dw", "db"};
  p.flops = flops(s) * (static_cast<int>(wanted.dx) + static_cast<int>(wanted.dw));
  return p;
}

OpCase forward_case() {
  OpCase op{"linear_forward", {}, {}};
  const auto test = [&](Size s, Options o) {
    op.tests.push_back({label(s, o), [=] { return forward_problem(s, o); }});
  };
  const auto benchmark = [&](Size s, Options o) {
    op.benchmarks.push_back({label(s, o), [=] { return forward_problem(s, o); }});
  };
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    test({1, 1, 1}, {t, true, false});
    test({3, 5, 7}, {t, false, false});
    test({70, 130, 33}, {.dtype = t, .bias = true, .add = true});
    test({530, 17, 600}, {t, true, false});  // several blocks both ways, the last ones cut
  }
  test({530, 17, 600}, {.add = true});
  for (Options o : {Options{}, Options{.bias = true}, Options{.bias = true, .add = true},
                    Options{.add = true}}) {
    o.dtype = o.compute = DType::kBF16;
    for (Size s : {Size{64, 128, 96}, Size{200, 264, 136}, Size{1, 8, 8}})
      op.tests16.push_back({label(s, o), [=] { return forward_problem(s, o); }});
  }
  op.tests16.push_back(
      {"F32 weight in BF16", [] {
         return forward_problem({64, 128, 96}, {.bias = true, .compute = DType::kBF16});
       }});
  const auto benchmark16 = [&](Size s) {
    const Options o{.dtype = DType::kBF16, .compute = DType::kBF16};
    op.benchmarks16.push_back({label(s, o), [=] { return forward_problem(s, o); }});
  };
  for (Size s : kLayer) benchmark16(s);
  for (Size s : kHead) benchmark16(s);
  for (std::int64_t R : {512, 1024}) {
    benchmark({R, 512, 512}, {});
    benchmark({R, 512, 1536}, {});
    benchmark({R, 1536, 512}, {});
  }
  benchmark({1024, 512, 1536}, {DType::kBF16, true, false});
  benchmark({1024, 896, 4864}, {});
  return op;
}

OpCase backward_case() {
  OpCase op{"linear_backward", {}, {}};
  const auto test = [&](Size s, Options o, Wanted w, const char* note) {
    op.tests.push_back({label(s, o) + note, [=] { return backward_problem(s, o, w); }});
  };
  const auto benchmark = [&](Size s, Wanted w, const char* note) {
    op.benchmarks.push_back({label(s, {}) + note, [=] { return backward_problem(s, {}, w); }});
  };
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    test({1, 1, 1}, {t}, {}, "");
    test({3, 5, 7}, {t}, {}, "");
    test({65, 33, 70}, {t, false, true}, {}, "");
    test({270, 9, 530}, {t}, {}, "");
  }
  test({33, 530, 9}, {}, {}, "");
  for (bool accumulate : {false, true}) {
    const Options o{.dtype = DType::kBF16, .accumulate = accumulate, .compute = DType::kBF16};
    for (Size s : {Size{64, 128, 96}, Size{200, 264, 136}, Size{8, 8, 8}})
      op.tests16.push_back({label(s, o), [=] { return backward_problem(s, o, {}); }});
  }
  const auto benchmark16 = [&](Size s, Wanted w, const char* note) {
    const Options o{.dtype = DType::kBF16, .compute = DType::kBF16};
    op.benchmarks16.push_back({label(s, o) + note, [=] { return backward_problem(s, o, w); }});
  };
  for (Size s : kLayer) {
    benchmark16(s, {true, false, false}, " dx");
    benchmark16(s, {false, true, false}, " dw");
    benchmark16(s, {false, false, true}, " db");
  }
  for (Size s : kHead) {  // no bias
    benchmark16(s, {true, false, false}, " dx");
    benchmark16(s, {false, true, false}, " dw");
  }
  test({9, 7, 8}, {}, {true, false, false}, " dx only");
  test({9, 7, 8}, {}, {false, true, false}, " dw only");
  test({9, 7, 8}, {}, {false, false, true}, " db only");
  for (std::int64_t R : {512, 1024}) {
    for (Size s : {Size{R, 512, 512}, Size{R, 512, 1536}, Size{R, 1536, 512}}) {
      benchmark(s, {true, false, false}, " dx only");
      benchmark(s, {false, true, false}, " dw only");
    }
  }
  return op;
}

}  // namespace

std::vector<OpCase> linear_cases() { return {forward_case(), backward_case()}; }

}  // namespace longstride::ops
