// Gradient pages in BF16: the same rounding in every engine, and on the CPU.
#include <cmath>

#include "tests/attention/rounding_check.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride {
namespace {

class GradientRounding : public OnGpu {};

SequenceLayout layout_of(std::int64_t tokens, std::int64_t chunk, std::int64_t start) {
  return {tokens, chunk, 128,
          start == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, start}};
}

// cuDNN in segments (dense, more than one segment), the matrix units (a window; a document that
// begins in the chunk), plain kernels (F32; odd heads).
TEST_F(GradientRounding, IsThatOfTheF32SumInEveryEngine) {
  for (const auto& [start, window] :
       {std::array<std::int64_t, 2>{0, 0}, {333, 0}, {0, 300}, {650, 0}})
    RoundingCheck(gpu(), {.layout = layout_of(1'000, 512, start),
                          .C = 64,
                          .compute = DType::kBF16,
                          .window = window})
        .run();
  for (const std::int64_t head_size : {10, 64})
    for (const DType compute : {DType::kF32, DType::kBF16})
      for (const std::int64_t window : {0, 300})
        RoundingCheck(gpu(), {.layout = layout_of(1'000, 256, 333),
                              .C = head_size,
                              .compute = compute,
                              .window = window})
            .run();
}

TEST_F(GradientRounding, IsThatOfTheF32SumInLargeLayouts) {
  for (const auto& [tokens, start, window] : {std::array<std::int64_t, 3>{3'000, 0, 0},
                                              {40'100, 0, 0},
                                              {3'000, 333, 0},
                                              {3'000, 0, 500},
                                              {3'000, 2'700, 0}})
    for (const std::int64_t head_size : {64, 128, 256})
      RoundingCheck(gpu(), {.layout = layout_of(tokens, 512, start),
                            .C = head_size,
                            .compute = DType::kBF16,
                            .window = window})
          .run();
}

// Sums differ in their last bits, so now and then a number rounds to its other neighbour.
TEST_F(GradientRounding, IsThatOfTheCpu) {
  const std::unique_ptr<Device> cpu = make_cpu_device();
  for (const std::int64_t window : {0, 300}) {
    const SegmentsCase c{.layout = layout_of(1'000, 256, 333), .C = 64, .window = window};
    RoundingCheck here(*cpu, c), there(gpu(), c);
    const std::vector<float> a = here.after<bf16>(9, here.in_order()),
                             b = there.after<bf16>(9, there.in_order());
    std::size_t differ = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 0x1p-7 * std::fabs(a[i]) + 1e-5) << i;
      differ += a[i] != b[i] ? 1 : 0;
    }
    EXPECT_LT(differ, a.size() / 500);
    EXPECT_NE(a, here.after<bf16>(10, here.in_order()));
  }
}

}  // namespace
}  // namespace longstride
