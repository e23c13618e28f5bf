#include "ops/embedding.h"

#include "ops/cases/registry.h"
#include "tensor/token_rows.h"

namespace longstride::ops {
namespace {

// One token makes up 1/frequent of all tokens, another about 1/second; 0: there is none.
struct Size {
  std::int64_t T, V, D;
  std::int64_t frequent = 0, second = 0;
};

std::string label(const Size& s, DType t) {
  std::string text = fmt::format("T={} V={} D={} {}", s.T, s.V, s.D, name_of(t));
  if (s.frequent > 0) text += fmt::format(", one token 1/{} of all", s.frequent);
  if (s.second > 0) text += fmt::format(", one 1/{}", s.second);
  return text;
}

// Tokens from all over the vocabulary, including the first and the last, many of them more than
// once.
std::int64_t token_at(const Size& s, std::int64_t t) {
  if (s.frequent > 0 && t % s.frequent == 0) return s.V / 2;
  if (s.second > 0 && t % s.second == 1) return s.V / 3;
  return t == 2 ? 0 : (t * t * 7 + s.V - 1) % s.V;
}

void add_tokens(Problem& p, const Size& s) {
  HostTensor& tokens = p.input("tokens", DType::kI32, {s.T});
  for (std::int64_t t = 0; t < s.T; ++t) tokens.set(t, static_cast<double>(token_at(s, t)));
}

TokenRows token_rows(const Size& s) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t t = 0; t < s.T; ++t)
    tokens.push_back(static_cast<std::int32_t>(token_at(s, t)));
  TokenRows rows;
  rows.build(tokens);
  return rows;
}

void add_token_rows(Problem& p, const Size& s) {
  const TokenRows of = token_rows(s);
  HostTensor& groups = p.input("groups", DType::kI32, {std::ssize(of.groups()), 4});
  std::ranges::copy(std::as_bytes(of.groups()), groups.bytes.begin());
  HostTensor& rows = p.input("rows", DType::kI32, {s.T});
  std::ranges::copy(std::as_bytes(of.rows()), rows.bytes.begin());
}

// Every row of dy is read once; every row of the table that has a token is read and written once.
double backward_bytes(const Size& s, DType dy) {
  return static_cast<double>(
      s.D * (s.T * size_of(dy) + std::ssize(token_rows(s).groups()) * 2 * size_of(DType::kF32)));
}

Problem forward_problem(Size s, DType dtype, float scale = 1.0f) {
  Problem p;
  add_tokens(p, s);
  p.input("table", dtype, {s.V, s.D});
  p.output("y", DType::kF32, {s.T, s.D}, scale == 1.0f ? 0 : 1e-6);
  p.run = [scale](Stream& stream, const Bound& v) {
    embedding_forward(
        stream, {.tokens_T = v("tokens"), .table_VD = v("table"), .y_TD = v("y"), .scale = scale});
  };
  p.reference = [=](Values& v) {
    for (std::int64_t t = 0; t < s.T; ++t) {
      const auto token = static_cast<std::int64_t>(v["tokens"][t]);
      for (std::int64_t i = 0; i < s.D; ++i)
        v["y"][t * s.D + i] = static_cast<double>(scale) * v["table"][token * s.D + i];
    }
  };
  p.bytes = static_cast<double>(s.T * s.D * (4 + size_of(dtype)));
  return p;
}

Problem backward_problem(Size s, float scale = 1.0f) {
  Problem p;
  add_tokens(p, s);
  add_token_rows(p, s);
  p.input("table", DType::kF32, {s.V, s.D});
  p.input("dy", DType::kF32, {s.T, s.D});
  p.update("dtable", DType::kF32, {s.V, s.D});
  // Half of the sizes leave the hint out.
  const std::int64_t longest = s.T % 2 == 0 ? token_rows(s).groups().front().count : 0;
  p.run = [longest, scale](Stream& stream, const Bound& v) {
    embedding_backward(stream, {.groups_G4 = v("groups"),
                                .rows_T = v("rows"),
                                .dy_TD = v("dy"),
                                .dtable_VD = v("dtable"),
                                .longest_group = longest,
                                .scale = scale});
  };
  p.reference = [=](Values& v) {
    for (std::int64_t t = 0; t < s.T; ++t) {
      const auto token = static_cast<std::int64_t>(v["tokens"][t]);
      for (std::int64_t i = 0; i < s.D; ++i)
        v["dtable"][token * s.D + i] += static_cast<double>(scale) * v["dy"][t * s.D + i];
    }
  };
  p.loss = [=](const Values& v) {
    double sum = 0;
    for (std::int64_t t = 0; t < s.T; ++t) {
      const auto token = static_cast<std::int64_t>(v.at("tokens")[t]);
      for (std::int64_t i = 0; i < s.D; ++i) {
        sum +=
            static_cast<double>(scale) * v.at("dy")[t * s.D + i] * v.at("table")[token * s.D + i];
      }
    }
    return sum;
  };
  p.gradients = {{"table", "dtable"}};
  p.optional = {"dtable"};
  p.bytes = backward_bytes(s, DType::kF32);
  return p;
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  OpCase forward{"embedding_forward", {}, {}}, backward{"embedding_backward", {}, {}};
  for (Size s : {Size{1, 1, 1}, Size{40, 11, 5}, Size{100, 257, 300}}) {
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
      forward.tests.push_back({label(s, t), [=] { return forward_problem(s, t); }});
    }
    backward.tests.push_back({label(s, DType::kF32), [=] { return backward_problem(s); }});
  }
  const Size real{1024, 32768, 512};
  forward.benchmarks = {
      {label(real, DType::kF32), [=] { return forward_problem(real, DType::kF32); }},
      {label(real, DType::kBF16), [=] { return forward_problem(real, DType::kBF16); }}};
  backward.benchmarks = {{label(real, DType::kF32), [=] { return backward_problem(real); }}};
  for (Size s : {Size{1, 1, 1}, Size{40, 11, 5}, Size{100, 257, 304}}) {
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
      forward.tests16.push_back(
          {label(s, t), [=] { return in_bf16(forward_problem(s, t), {"y"}, 0x1p-8); }});
    backward.tests16.push_back(
        {label(s, DType::kF32), [=] { return in_bf16(backward_problem(s), {"dy"}, 4e-6); }});
  }
  // More tokens than blocks run at once, some of them more than once.
  const Size wide{600, 1009, 4104};
  backward.tests.push_back({label(wide, DType::kF32), [=] { return backward_problem(wide); }});
  backward.tests16.push_back(
      {label(wide, DType::kF32), [=] { return in_bf16(backward_problem(wide), {"dy"}, 4e-6); }});
  // Each token many times.
  const Size many{9000, 97, 16};
  backward.tests.push_back({label(many, DType::kF32), [=] { return backward_problem(many); }});
  backward.tests16.push_back(
      {label(many, DType::kF32), [=] { return in_bf16(backward_problem(many), {"dy"}, 4e-6); }});
  // Tokens that make up much of a chunk: a fifth, all of it, two of them; also in unaligned rows.
  // The numbers of rows and columns are not multiples of a device's tile sizes.
  for (Size s : {Size{1031, 509, 328, 5}, Size{517, 3, 264, 1}, Size{600, 301, 584, 3, 4},
                 Size{700, 50, 37, 2}}) {
    backward.tests.push_back({label(s, DType::kF32), [=] { return backward_problem(s); }});
    backward.tests16.push_back(
        {label(s, DType::kF32), [=] { return in_bf16(backward_problem(s), {"dy"}, 4e-6); }});
  }
  // Scaled embeddings.
  constexpr float kScale = 61.9677335f;
  for (Size s : {Size{40, 11, 5}, Size{100, 257, 304}, Size{1031, 509, 328, 5}}) {
    const std::string scaled = label(s, DType::kBF16) + " scaled";
    forward.tests.push_back({scaled, [=] { return forward_problem(s, DType::kBF16, kScale); }});
    backward.tests.push_back({scaled, [=] { return backward_problem(s, kScale); }});
    forward.tests16.push_back(
        {scaled, [=] { return in_bf16(forward_problem(s, DType::kBF16, kScale), {"y"}, 0x1p-8); }});
    backward.tests16.push_back(
        {scaled, [=] { return in_bf16(backward_problem(s, kScale), {"dy"}, 4e-6); }});
  }
  const Size large{4096, 152064, 3584}, skewed{4096, 152064, 3584, 5};
  forward.benchmarks16 = {{label(large, DType::kBF16), [=] {
                             Problem p = in_bf16(forward_problem(large, DType::kBF16), {"y"});
                             p.bytes = static_cast<double>(large.T * large.D * 4);
                             return p;
                           }}};
  for (Size s : {large, skewed}) {
    backward.benchmarks16.push_back({label(s, DType::kF32), [=] {
                                       Problem p = in_bf16(backward_problem(s), {"dy"});
                                       p.bytes = backward_bytes(s, DType::kBF16);
                                       return p;
                                     }});
  }
  return {forward, backward};
}

}  // namespace longstride::ops
