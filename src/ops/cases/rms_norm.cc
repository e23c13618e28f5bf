#include "ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

constexpr float kEps = 1e-3f;  // large enough to matter in the tests

struct Size {
  std::int64_t R, N;
};
struct Options {
  DType dtype = DType::kF32;
  bool in_place = false, accumulate = false;
  float offset = 0.0f;
  std::int64_t more = 0;  // columns of y that stay
};

std::string label(const Size& s, const Options& o) {
  return fmt::format("R={} N={}{} {}{}{}{}", s.R, s.N, o.more > 0 ? fmt::format("+{}", o.more) : "",
                     name_of(o.dtype), o.in_place ? " in place" : "", o.accumulate ? " +=" : "",
                     o.offset != 0 ? " 1+w" : "");
}

double inverse_rms(const std::vector<double>& x, std::int64_t r, std::int64_t N) {
  double sum = 0;
  for (std::int64_t i = 0; i < N; ++i) sum += x[r * N + i] * x[r * N + i];
  return 1 / std::sqrt(sum / static_cast<double>(N) + static_cast<double>(kEps));
}

std::vector<double> normalise(const std::vector<double>& x, const std::vector<double>& w,
                              const Size& s, double offset) {
  std::vector<double> y(x.size());
  for (std::int64_t r = 0; r < s.R; ++r) {
    const double scale = inverse_rms(x, r, s.N);
    for (std::int64_t i = 0; i < s.N; ++i)
      y[r * s.N + i] = x[r * s.N + i] * scale * (offset + w[i]);
  }
  return y;
}

Problem forward_problem(Size s, Options o) {
  Problem p;
  if (o.in_place) {
    p.in_place("x", DType::kF32, {s.R, s.N});
  } else {
    p.input("x", DType::kF32, {s.R, s.N});
    if (o.more > 0)
      p.update("y", DType::kF32, {s.R, s.N + o.more});
    else
      p.output("y", DType::kF32, {s.R, s.N});
  }
  p.input("w", o.dtype, {s.N});
  const std::string y = o.in_place ? "x" : "y";
  p.run = [=](Stream& stream, const Bound& v) {
    rms_norm_forward(
        stream, {.x_RN = v("x"), .w_N = v("w"), .y_RW = v(y), .eps = kEps, .offset = o.offset});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> all = normalise(v["x"], v["w"], s, o.offset);
    for (std::int64_t r = 0; r < s.R; ++r)
      std::copy_n(all.begin() + r * s.N, s.N, v[y].begin() + r * (s.N + o.more));
  };
  p.bytes = static_cast<double>(8 * s.R * s.N);
  return p;
}

// In place, dx overwrites dy.
Problem backward_problem(Size s, Options o) {
  Problem p;
  p.input("x", DType::kF32, {s.R, s.N});
  p.input("w", o.dtype, {s.N});
  if (o.in_place) {
    p.in_place("dy", DType::kF32, {s.R, s.N});
  } else {
    p.input("dy", DType::kF32, {s.R, s.N});
    if (o.accumulate) {
      p.update("dx", DType::kF32, {s.R, s.N});
    } else {
      p.output("dx", DType::kF32, {s.R, s.N});
      if (s.N == 1) p.arguments.back().magnitude = 1;  // of the terms, which nearly cancel
    }
  }
  p.update("dw", DType::kF32, {s.N});
  p.scratch("scratch", [=](const Stream& stream) {
    return rms_norm_backward_scratch_elements(stream, {s.R, s.N});
  });
  const std::string out = o.in_place ? "dy" : "dx";
  p.run = [=](Stream& stream, const Bound& v) {
    rms_norm_backward(stream, {.dy_RN = v("dy"),
                               .x_RN = v("x"),
                               .w_N = v("w"),
                               .dx_RN = v(out),
                               .dw_N = v("dw"),
                               .scratch = v("scratch"),
                               .eps = kEps,
                               .accumulate_dx = o.accumulate,
                               .offset = o.offset});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> x = v["x"], dy = v["dy"];
    std::vector<double> w = v["w"];
    for (double& factor : w) factor += static_cast<double>(o.offset);
    std::vector<double>&dx = v[out], &dw = v["dw"];
    if (!o.accumulate) std::fill(dx.begin(), dx.end(), 0.0);
    for (std::int64_t r = 0; r < s.R; ++r) {
      const double scale = inverse_rms(x, r, s.N);
      double along = 0;
      for (std::int64_t i = 0; i < s.N; ++i) along += dy[r * s.N + i] * w[i] * x[r * s.N + i];
      along *= scale * scale / static_cast<double>(s.N);
      for (std::int64_t i = 0; i < s.N; ++i) {
        dx[r * s.N + i] += scale * (dy[r * s.N + i] * w[i] - x[r * s.N + i] * along);
        dw[i] += dy[r * s.N + i] * x[r * s.N + i] * scale;
      }
    }
  };
  p.loss = [=](const Values& v) {
    const std::vector<double> y = normalise(v.at("x"), v.at("w"), s, o.offset);
    const std::vector<double>& dy = v.at("dy");
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  p.gradients = {{"x", out}, {"w", "dw"}};
  p.optional = {"dw"};
  p.bytes = static_cast<double>((o.accumulate ? 16 : 12) * s.R * s.N);
  return p;
}

}  // namespace

std::vector<OpCase> rms_norm_cases() {
  OpCase forward{"rms_norm_forward", {}, {}}, backward{"rms_norm_backward", {}, {}};
  for (Size s : {Size{1, 1}, Size{5, 7}, Size{600, 16}, Size{70, 1030}}) {
    for (Options o :
         {Options{}, Options{DType::kBF16}, Options{DType::kF16}, Options{DType::kF32, true}}) {
      forward.tests.push_back({label(s, o), [=] { return forward_problem(s, o); }});
      backward.tests.push_back({label(s, o), [=] { return backward_problem(s, o); }});
    }
    const Options add{DType::kBF16, false, true};
    backward.tests.push_back({label(s, add), [=] { return backward_problem(s, add); }});
    for (const std::int64_t more : {3, 16}) {
      const Options wider{.dtype = DType::kBF16, .more = more};
      forward.tests.push_back({label(s, wider), [=] { return forward_problem(s, wider); }});
    }
    for (DType type : {DType::kF32, DType::kBF16}) {
      const Options from_one{.dtype = type, .offset = 1.0f};
      forward.tests.push_back({label(s, from_one), [=] { return forward_problem(s, from_one); }});
      backward.tests.push_back({label(s, from_one), [=] { return backward_problem(s, from_one); }});
    }
  }
  for (Size s : {Size{1024, 512}, Size{1024, 3584}, Size{8192, 128}}) {
    forward.benchmarks.push_back({label(s, {}), [=] { return forward_problem(s, {}); }});
    backward.benchmarks.push_back({label(s, {}), [=] { return backward_problem(s, {}); }});
  }
  // BF16 activations; half the bytes.
  const auto forward16 = [](Size s, Options o) {
    Problem p = in_bf16(forward_problem(s, o), {"x", "y"});
    p.bytes /= 2;
    return p;
  };
  const auto backward16 = [](Size s, Options o) {
    Problem p = in_bf16(backward_problem(s, o), {"x", "dy", "dx"});
    p.bytes /= 2;
    return p;
  };
  for (Size s : {Size{1, 1}, Size{600, 16}, Size{70, 1030}, Size{9, 3584}, Size{5, 16384}}) {
    for (Options o : {Options{DType::kBF16}, Options{DType::kF32, true},
                      Options{.dtype = DType::kBF16, .offset = 1.0f}}) {
      forward.tests16.push_back({label(s, o), [=] { return forward16(s, o); }});
      backward.tests16.push_back({label(s, o), [=] { return backward16(s, o); }});
    }
    const Options add{DType::kBF16, false, true};
    backward.tests16.push_back({label(s, add), [=] { return backward16(s, add); }});
    for (const std::int64_t more : {3, 16}) {
      const Options wider{.dtype = DType::kBF16, .more = more};
      forward.tests16.push_back({label(s, wider), [=] { return forward16(s, wider); }});
    }
  }
  // Larger than any cache.
  for (Size s : {Size{32768, 3584}, Size{std::int64_t{32768} * 28, 128}}) {
    const Options plain{DType::kBF16}, add{DType::kBF16, false, true};
    forward.benchmarks16.push_back({label(s, plain), [=] { return forward16(s, plain); }});
    backward.benchmarks16.push_back({label(s, plain), [=] { return backward16(s, plain); }});
    backward.benchmarks16.push_back({label(s, add), [=] { return backward16(s, add); }});
  }
  return {forward, backward};
}

}  // namespace longstride::ops
