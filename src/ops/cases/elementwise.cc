#include "ops/elementwise.h"

#include <limits>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

Problem add_problem(std::int64_t n, bool in_place) {
  Problem p;
  if (in_place) {
    p.in_place("a", DType::kF32, {n});
  } else {
    p.input("a", DType::kF32, {n});
    p.output("y", DType::kF32, {n});
  }
  p.input("b", DType::kF32, {n});
  const std::string y = in_place ? "a" : "y";
  p.run = [=](Stream& stream, const Bound& v) {
    add(stream, {.a = v("a"), .b = v("b"), .y = v(y)});
  };
  p.reference = [=](Values& v) {
    for (std::size_t i = 0; i < v[y].size(); ++i) v[y][i] = v["a"][i] + v["b"][i];
  };
  p.bytes = static_cast<double>(12 * n);
  return p;
}

// Numbers that are hard to round: ties, the ends of the ranges, subnormals of either side,
// infinities.
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHard[] = {0.0,           -0.0,        1.0 + 0x1p-8, 1.0 + 0x3p-8, 1.0 + 0x1p-11,
                            1.0 + 0x3p-11, 65504.0,     65519.0,      65520.0,      -70000.0,
                            0x1p-14,       0x1p-24,     0x1p-25,      0x3p-25,      0x1.8p-24,
                            3.3895314e38,  -3.4e38,     0x1p-126,     0x1p-133,     0x1p-149,
                            0x1.fep-15,    0x1.ffcp-15, kInfinity,    -kInfinity};

Problem convert_problem(std::int64_t n, DType from, DType to) {
  Problem p;
  HostTensor& x = p.input("x", from, {n}, 3);
  std::int64_t i = 0;
  for (double hard : kHard) {
    if (i < n) x.set(i++, hard);
  }
  p.output("y", to, {n}, 0);
  p.run = [](Stream& stream, const Bound& v) { convert(stream, {.x = v("x"), .y = v("y")}); };
  p.reference = [=](Values& v) {
    HostTensor rounded(to, {n});
    for (std::int64_t k = 0; k < n; ++k) {
      rounded.set(k, v["x"][k]);
      v["y"][k] = rounded.get(k);
    }
  };
  p.bytes = static_cast<double>(n * (size_of(from) + size_of(to)));
  return p;
}

Problem zero_problem(std::int64_t n, DType t) {
  Problem p;
  p.output("y", t, {n}, 0);
  p.run = [](Stream& stream, const Bound& v) { zero(stream, {.y = v("y")}); };
  p.reference = [](Values& v) {
    for (double& y : v["y"]) y = 0;
  };
  p.bytes = static_cast<double>(n * size_of(t));
  return p;
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  OpCase add{"add", {}, {}}, convert{"convert", {}, {}}, zero{"zero", {}, {}};
  constexpr std::int64_t kReal = std::int64_t{1024} * 3584;
  constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (std::int64_t n : {1, 1000, 40000}) {
    add.tests.push_back({fmt::format("n={}", n), [=] { return add_problem(n, false); }});
    add.tests.push_back({fmt::format("n={} in place", n), [=] { return add_problem(n, true); }});
    for (DType from : kFloats) {
      for (DType to : kFloats) {
        convert.tests.push_back({fmt::format("n={} {} to {}", n, name_of(from), name_of(to)),
                                 [=] { return convert_problem(n, from, to); }});
      }
    }
  }
  for (DType t : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8}) {
    zero.tests.push_back(
        {fmt::format("n=300001 {}", name_of(t)), [=] { return zero_problem(300001, t); }});
  }
  add.benchmarks = {{fmt::format("n={}", kReal), [] { return add_problem(kReal, true); }}};
  for (DType t : {DType::kBF16, DType::kF16}) {
    convert.benchmarks.push_back({fmt::format("n={} {} to F32", kReal, name_of(t)),
                                  [=] { return convert_problem(kReal, t, DType::kF32); }});
    convert.benchmarks.push_back({fmt::format("n={} F32 to {}", kReal, name_of(t)),
                                  [=] { return convert_problem(kReal, DType::kF32, t); }});
  }
  zero.benchmarks = {
      {fmt::format("n={} F32", kReal), [] { return zero_problem(kReal, DType::kF32); }}};
  for (std::int64_t n : {1, 1000, 40000}) {
    for (bool in_place : {false, true})
      add.tests16.push_back({fmt::format("n={}{}", n, in_place ? " in place" : ""), [=] {
                               return in_bf16(add_problem(n, in_place), {"a", "b", "y"}, 0x1p-8);
                             }});
  }
  constexpr std::int64_t kLarge = std::int64_t{4096} * 3584;
  add.benchmarks16 = {{fmt::format("n={}", kLarge), [] {
                         Problem p = in_bf16(add_problem(kLarge, true), {"a", "b"});
                         p.bytes /= 2;
                         return p;
                       }}};
  convert.benchmarks16 = {{fmt::format("n={} BF16 to BF16", kLarge),
                           [] { return convert_problem(kLarge, DType::kBF16, DType::kBF16); }},
                          {fmt::format("n={} F32 to BF16", kLarge),
                           [] { return convert_problem(kLarge, DType::kF32, DType::kBF16); }}};
  zero.benchmarks16 = {
      {fmt::format("n={} F32", kLarge), [] { return zero_problem(kLarge, DType::kF32); }}};
  return {add, convert, zero};
}

}  // namespace longstride::ops
