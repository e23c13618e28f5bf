#include "ops/rope.h"

#include <cmath>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

constexpr double kFactor = 1.25;

// The same angles for every case: token t has position 3 t.
void add_tables(Problem& p, std::int64_t T, std::int64_t N) {
  HostTensor cos(DType::kF32, {T, N}), sin(DType::kF32, {T, N});
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t i = 0; i < N; ++i) {
      const double angle = static_cast<double>(3 * t) *
                           std::pow(1e4, -static_cast<double>(i) / static_cast<double>(N));
      cos.set(t * N + i, kFactor * std::cos(angle));
      sin.set(t * N + i, kFactor * std::sin(angle));
    }
  }
  p.arguments.push_back({"cos", Role::kInput, cos, 0});
  p.arguments.push_back({"sin", Role::kInput, sin, 0});
}

// Rotates the H heads of every token, by the negative angles if sign is -1.
std::vector<double> turn(const Values& v, const std::vector<double>& x, std::int64_t T,
                         std::int64_t H, std::int64_t C, double sign) {
  std::vector<double> y(x.size());
  const std::vector<double>&cosines = v.at("cos"), &sines = v.at("sin");
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t i = 0; i < C / 2; ++i) {
        const std::int64_t a = (t * H + h) * C + i, b = a + C / 2;
        const double cos = cosines[t * (C / 2) + i], sin = sign * sines[t * (C / 2) + i];
        y[a] = x[a] * cos - x[b] * sin;
        y[b] = x[b] * cos + x[a] * sin;
      }
    }
  }
  return y;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Problem tables_problem(std::int64_t T, std::int64_t N, std::int64_t first, double factor) {
  Problem p;
  HostTensor& positions = p.input("positions", DType::kI64, {T});
  for (std::int64_t t = 0; t < T; ++t) positions.set(t, static_cast<double>(first + t * 7));
  HostTensor& frequencies = p.input("frequencies", DType::kF64, {N});
  for (std::int64_t i = 0; i < N; ++i) {
    frequencies.set(i, std::pow(1e6, -static_cast<double>(i) / static_cast<double>(N)));
  }
  p.output("cos", DType::kF32, {T, N}, 0x1p-24);  // rounded once
  p.output("sin", DType::kF32, {T, N}, 0x1p-24);
  p.run = [=](Stream& stream, const Bound& v) {
    rope_tables(stream, {.positions_T = v("positions"),
                         .frequencies_N = v("frequencies"),
                         .cos_TN = v("cos"),
                         .sin_TN = v("sin"),
                         .attention_factor = factor});
  };
  p.reference = [=](Values& v) {
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t i = 0; i < N; ++i) {
        const long double angle = static_cast<long double>(v["positions"][t]) *
                                  static_cast<long double>(v["frequencies"][i]);
        v["cos"][t * N + i] = static_cast<double>(std::cos(angle)) * factor;
        v["sin"][t * N + i] = static_cast<double>(std::sin(angle)) * factor;
      }
    }
  };
  p.bytes = static_cast<double>(8 * T * N);
  return p;
}

// The inverse is the gradient: x holds dy before and dx after, where y = rotate(x0).
Problem rope_problem(std::int64_t T, std::int64_t H, std::int64_t C, bool inverse) {
  Problem p;
  p.in_place("x", DType::kF32, {T, H, C});
  add_tables(p, T, C / 2);
  p.run = [=](Stream& stream, const Bound& v) {
    rope(stream, {.x_THC = v("x"), .cos_TN = v("cos"), .sin_TN = v("sin"), .inverse = inverse});
  };
  p.reference = [=](Values& v) { v["x"] = turn(v, v["x"], T, H, C, inverse ? -1 : 1); };
  if (inverse) {
    p.input("x0", DType::kF32, {T, H, C});
    p.loss = [=](const Values& v) { return dot(v.at("x"), turn(v, v.at("x0"), T, H, C, 1)); };
    p.gradients = {{"x0", "x"}};
  }
  p.bytes = static_cast<double>(8 * T * H * C);
  return p;
}

struct Paged {
  std::int64_t T, K, C, P, begin;
  DType dtype = DType::kF32;

  std::string label() const {
    return fmt::format("T={} K={} C={} P={} begin={} {}", T, K, C, P, begin, name_of(dtype));
  }
  double tolerance() const {
    return dtype == DType::kF32 ? 1e-6 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  }
  std::int64_t pages() const { return (begin + T + P - 1) / P; }
  // Pages are in reverse order, one slot is unused, and pages wholly before `begin` do not exist.
  std::vector<std::int32_t> slots() const {
    std::vector<std::int32_t> slots;
    for (std::int64_t i = 0; i < pages(); ++i)
      slots.push_back((i + 1) * P <= begin ? -1 : static_cast<std::int32_t>(pages() - i));
    return slots;
  }
  // Index in the pool of the first element of a token's key or value row.
  std::int64_t element(std::int64_t t, int plane) const {
    return (((pages() - t / P) * P + t % P) * 2 + plane) * K * C;
  }
};

Shape pool_shape(const Paged& s) { return {s.pages() + 1, s.P, 2, s.K * s.C}; }

// Page tables stay on the host; `slots` outlives the view.
PagesView pages_of(const Bound& v, const Paged& s, const std::vector<std::int32_t>& slots) {
  return {.base = static_cast<std::byte*>(v("pool").data()),
          .slots = slots.data(),
          .page_bytes = 2 * s.P * s.K * s.C * size_of(s.dtype),
          .page_tokens = s.P,
          .kv_heads = s.K,
          .head_size = s.C,
          .dtype = s.dtype};
}

Problem append_problem(Paged s) {
  Problem p;
  p.input("k", DType::kF32, {s.T, s.K, s.C});
  p.input("v", DType::kF32, {s.T, s.K, s.C});
  p.update("pool", s.dtype, pool_shape(s), s.tolerance());
  add_tables(p, s.T, s.C / 2);
  p.run = [s, slots = s.slots()](Stream& stream, const Bound& v) {
    append_kv(stream, {.k_TKC = v("k"),
                       .v_TKC = v("v"),
                       .cos_TN = v("cos"),
                       .sin_TN = v("sin"),
                       .pages = pages_of(v, s, slots),
                       .begin = s.begin});
  };
  p.reference = [=](Values& v) {
    const std::vector<double> k = turn(v, v["k"], s.T, s.K, s.C, 1);
    for (std::int64_t t = 0; t < s.T; ++t) {
      for (std::int64_t i = 0; i < s.K * s.C; ++i) {
        v["pool"][s.element(s.begin + t, 0) + i] = k[t * s.K * s.C + i];
        v["pool"][s.element(s.begin + t, 1) + i] = v["v"][t * s.K * s.C + i];
      }
    }
  };
  p.bytes = static_cast<double>(2 * s.T * s.K * s.C * (4 + size_of(s.dtype)));
  return p;
}

// The pool holds the gradients of what append_kv would have stored for k0 and v0.
Problem take_problem(Paged s) {
  Problem p;
  p.input("pool", s.dtype, pool_shape(s));
  p.input("k0", DType::kF32, {s.T, s.K, s.C});
  p.input("v0", DType::kF32, {s.T, s.K, s.C});
  add_tables(p, s.T, s.C / 2);
  p.output("dk", DType::kF32, {s.T, s.K, s.C});
  p.output("dv", DType::kF32, {s.T, s.K, s.C});
  p.run = [s, slots = s.slots()](Stream& stream, const Bound& v) {
    take_kv_gradient(stream, {.pages = pages_of(v, s, slots),
                              .begin = s.begin,
                              .cos_TN = v("cos"),
                              .sin_TN = v("sin"),
                              .dk_TKC = v("dk"),
                              .dv_TKC = v("dv")});
  };
  const auto plane = [=](const Values& v, int which) {
    std::vector<double> rows;
    for (std::int64_t t = s.begin; t < s.begin + s.T; ++t) {
      const auto first = v.at("pool").begin() + s.element(t, which);
      rows.insert(rows.end(), first, first + s.K * s.C);
    }
    return rows;
  };
  p.reference = [=](Values& v) {
    v["dk"] = turn(v, plane(v, 0), s.T, s.K, s.C, -1);
    v["dv"] = plane(v, 1);
  };
  p.loss = [=](const Values& v) {
    return dot(plane(v, 0), turn(v, v.at("k0"), s.T, s.K, s.C, 1)) + dot(plane(v, 1), v.at("v0"));
  };
  p.gradients = {{"k0", "dk"}, {"v0", "dv"}};
  p.bytes = static_cast<double>(2 * s.T * s.K * s.C * (4 + size_of(s.dtype)));
  return p;
}

}  // namespace

std::vector<OpCase> rope_cases() {
  OpCase tables{"rope_tables", {}, {}}, rope{"rope", {}, {}};
  OpCase append{"append_kv", {}, {}}, take{"take_kv_gradient", {}, {}};
  const auto add_table = [](std::vector<Variant>& list, std::int64_t T, std::int64_t N,
                            std::int64_t first, double factor) {
    list.push_back({fmt::format("T={} N={} first={} factor={}", T, N, first, factor),
                    [=] { return tables_problem(T, N, first, factor); }});
  };
  add_table(tables.tests, 1, 1, 0, 1);
  add_table(tables.tests, 50, 33, 0, 1.1);
  for (std::int64_t first :
       {std::int64_t{1} << 20, std::int64_t{10000000}, std::int64_t{1} << 31}) {
    add_table(tables.tests, 20, 64, first, 1);
  }
  add_table(tables.benchmarks, 1024, 64, 0, 1);

  const auto add_rope = [](std::vector<Variant>& list, std::int64_t T, std::int64_t H,
                           std::int64_t C) {
    for (bool inverse : {false, true}) {
      list.push_back({fmt::format("T={} H={} C={}{}", T, H, C, inverse ? " inverse" : ""),
                      [=] { return rope_problem(T, H, C, inverse); }});
    }
  };
  add_rope(rope.tests, 1, 1, 2);
  add_rope(rope.tests, 37, 3, 10);
  add_rope(rope.tests, 20, 2, 128);
  add_rope(rope.benchmarks, 1024, 8, 64);

  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (Paged s :
         {Paged{1, 1, 2, 1, 0, t}, Paged{40, 2, 10, 16, 32, t}, Paged{37, 3, 64, 8, 13, t}}) {
      append.tests.push_back({s.label(), [=] { return append_problem(s); }});
      take.tests.push_back({s.label(), [=] { return take_problem(s); }});
    }
  }
  for (bool inverse : {false, true}) {
    rope.tests16.push_back({fmt::format("T=20 H=2 C=128{}", inverse ? " inverse" : ""),
                            [=] { return in_bf16(rope_problem(20, 2, 128, inverse), {"x"}); }});
    rope.tests16.push_back({fmt::format("T=37 H=3 C=10{}", inverse ? " inverse" : ""),
                            [=] { return in_bf16(rope_problem(37, 3, 10, inverse), {"x"}); }});
  }
  const auto append16 = [](Paged s) { return in_bf16(append_problem(s), {"k", "v"}); };
  const auto take16 = [](Paged s) { return in_bf16(take_problem(s), {"dk", "dv"}); };
  for (DType t : {DType::kF32, DType::kBF16})
    for (Paged s : {Paged{40, 2, 10, 16, 32, t}, Paged{37, 3, 64, 8, 13, t}}) {
      append.tests16.push_back({s.label(), [=] { return append16(s); }});
      take.tests16.push_back({s.label(), [=] { return take16(s); }});
    }
  const Paged large{32768, 4, 128, 128, 0, DType::kBF16}, large32{32768, 4, 128, 128, 0};
  tables.benchmarks16 = {{"T=4096 N=64", [] { return tables_problem(4096, 64, 1 << 20, 1); }}};
  rope.benchmarks16 = {{"T=32768 H=28 C=128", [] {
                          Problem p = in_bf16(rope_problem(32768, 28, 128, false), {"x"});
                          p.bytes /= 2;
                          return p;
                        }}};
  append.benchmarks16 = {{large.label(), [=] {
                            Problem p = append16(large);
                            p.bytes = 2.0 * 32768 * 512 * 4;
                            return p;
                          }}};
  take.benchmarks16 = {{large32.label(), [=] {
                          Problem p = take16(large32);
                          p.bytes = 2.0 * 32768 * 512 * 6;
                          return p;
                        }}};
  const Paged real{1024, 2, 64, 128, 0};
  append.benchmarks = {{real.label(), [=] { return append_problem(real); }}};
  take.benchmarks = {{real.label(), [=] { return take_problem(real); }}};
  return {tables, rope, append, take};
}

}  // namespace longstride::ops
