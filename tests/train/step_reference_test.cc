// Invariant 1: any chunk size gives the gradients of the whole sequence at once.
#include <gtest/gtest.h>

#include "tests/train/like_reference.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

class StepAgainstReference : public testing::TestWithParam<int> {};

// Random shapes, heads, biases, norms, windows, documents, masks, chunk and page sizes.
TEST_P(StepAgainstReference, LossAndEveryGradient) {
  const auto device = make_cpu_device();
  const RandomCase c = random_case(static_cast<std::uint64_t>(GetParam()));
  const auto weights = random_weights(*device, c.config, static_cast<std::uint64_t>(GetParam()));
  const reference::Result expected =
      reference::run(c.config, *weights, c.tokens, c.targets, c.document_starts);
  expect_like_reference(run_step(*device, c, *weights, c.chunk, c.page, c.keep_chunks), expected,
                        1e-5);
}
INSTANTIATE_TEST_SUITE_P(Random, StepAgainstReference, testing::Range(0, 60));

// One sequence with many chunk sizes, including one larger than the sequence.
TEST(StepChunks, AnyCutGivesTheSameGradients) {
  const auto device = make_cpu_device();
  Random random(5, 1);
  RandomCase c;
  c.config = random_config(random);
  c.config.windows.assign(static_cast<std::size_t>(c.config.layers), 0);
  fill_sequence(c, random, 333, 3, 0);
  const auto weights = random_weights(*device, c.config, 5);
  const reference::Result expected =
      reference::run(c.config, *weights, c.tokens, c.targets, c.document_starts);
  for (const auto& [chunk, page] : {std::pair<std::int64_t, std::int64_t>{16, 16},
                                    {32, 16},
                                    {64, 64},
                                    {96, 48},
                                    {128, 32},
                                    {320, 64},
                                    {336, 16},
                                    {1024, 128}}) {
    SCOPED_TRACE(fmt::format("chunk {} page {}", chunk, page));
    expect_like_reference(run_step(*device, c, *weights, chunk, page, 1), expected, 1e-5);
  }
}

TEST(StepChunks, PositionsBeyondAMillionOnlyShiftTheAngles) {
  // Attention depends only on differences of positions, so a shift changes nothing but rounding;
  // angles in single precision would be off by whole radians here.
  const auto device = make_cpu_device();
  Random random(9, 1);
  RandomCase c;
  c.config = random_config(random);
  c.config.rope.theta = 10000;
  fill_sequence(c, random, 150, 1, 0);
  const auto weights = random_weights(*device, c.config, 9);
  const reference::Result near =
      reference::run(c.config, *weights, c.tokens, c.targets, c.document_starts);
  for (const std::int64_t first : {std::int64_t{1} << 20, (std::int64_t{1} << 31) + 12345})
    expect_like_reference(run_step(*device, c, *weights, 64, 32, 1, first), near, 2e-5);
}

}  // namespace
}  // namespace longstride
