#include "ops/swap_axes.h"

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

Problem swap_axes_problem(std::int64_t A, std::int64_t B, std::int64_t C, DType t) {
  Problem p;
  // Whole numbers that every type has.
  HostTensor& x = p.input("x", t, {A, B, C});
  for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i % 251));
  p.output("y", t, {B, A, C}, 0);
  p.run = [](Stream& stream, const Bound& v) {
    swap_axes(stream, {.x_ABC = v("x"), .y_BAC = v("y")});
  };
  p.reference = [=](Values& v) {
    for (std::int64_t a = 0; a < A; ++a)
      for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t c = 0; c < C; ++c)
          v["y"][(b * A + a) * C + c] = v["x"][(a * B + b) * C + c];
  };
  p.bytes = static_cast<double>(2 * A * B * C * size_of(t));
  return p;
}

}  // namespace

std::vector<OpCase> swap_axes_cases() {
  OpCase swap{"swap_axes", {}, {}};
  const auto variant = [](std::int64_t A, std::int64_t B, std::int64_t C, DType t) {
    return Variant{fmt::format("A={} B={} C={} {}", A, B, C, name_of(t)),
                   [=] { return swap_axes_problem(A, B, C, t); }};
  };
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kU8}) {
    swap.tests.push_back(variant(1, 1, 1, t));
    swap.tests.push_back(variant(37, 3, 5, t));
    swap.tests.push_back(variant(2, 45, 128, t));
    swap.tests.push_back(variant(130, 4, 48, t));
  }
  // q of 2048 tokens of Qwen2.5-7B, whose heads two processes share.
  constexpr std::int64_t kHalf = std::int64_t{14} * 128;
  swap.benchmarks = {variant(2048, 2, kHalf, DType::kF32)};
  swap.benchmarks16 = {variant(2048, 2, kHalf, DType::kBF16)};
  return {swap};
}

}  // namespace longstride::ops
