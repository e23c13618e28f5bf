// Invariants 2 and 4: given the numerics record, no plan and no number of threads changes a bit.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

RandomCase long_case(std::uint64_t seed) {
  Random random(seed, 3);
  RandomCase c;
  c.config = random_config(random);
  fill_sequence(c, random, 290, 3, 5);
  return c;
}

void expect_same(const StepOutcome& a, const StepOutcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.result.loss_sum, b.result.loss_sum);
  EXPECT_TRUE(same_bits(*a.gradients, *b.gradients));
}

TEST(StepBits, KeptOrRecomputedIsTheSame) {
  const auto device = make_cpu_device();
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const RandomCase c = long_case(seed);
    const auto weights = random_weights(*device, c.config, seed);
    const StepOutcome recomputed = run_step(*device, c, *weights, 32, 16, 1);
    for (const std::int64_t keep : {2, 3, 9, 10, 100})
      expect_same(run_step(*device, c, *weights, 32, 16, keep), recomputed);
    for (const std::int64_t keep : {1, 3})
      expect_same(run_step(*device, c, *weights, 32, 16, keep, 0, true), recomputed);
  }
}

TEST(StepBits, ThreadsChangeNothing) {
  const auto device = make_cpu_device();
  const RandomCase c = long_case(4);
  const auto weights = random_weights(*device, c.config, 4);
  const int before = thread_count();
  set_thread_count(1);
  const StepOutcome one = run_step(*device, c, *weights, 64, 32, 1);
  for (const int threads : {2, 3, 5}) {
    set_thread_count(threads);
    expect_same(run_step(*device, c, *weights, 64, 32, 1), one);
  }
  set_thread_count(before);
}

TEST(StepBits, TwoRunsAreTheSame) {
  const auto device = make_cpu_device();
  const RandomCase c = long_case(2);
  const auto weights = random_weights(*device, c.config, 2);
  expect_same(run_step(*device, c, *weights, 48, 16, 1), run_step(*device, c, *weights, 48, 16, 1));
}

// A runner is reused for sequences of any length up to the longest.
TEST(StepBits, ARunnerLeavesNothingBehind) {
  const auto device = make_cpu_device();
  const RandomCase c = long_case(1);
  RandomCase shorter = c;
  Random random(8, 8);
  fill_sequence(shorter, random, 77, 2, 0);
  const auto weights = random_weights(*device, c.config, 1);
  const StepOutcome fresh = run_step(*device, c, *weights, 32, 16, 2);

  ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
  StepRunner runner =
      planned_runner(c.config, *weights, gradients, choose_numerics(*device, c.config, 32, 16),
                     {static_cast<std::int64_t>(c.tokens.size()), 2});
  const auto counted = [](const RandomCase& x) {
    return static_cast<double>(
        std::count_if(x.targets.begin(), x.targets.end(), [](std::int32_t t) { return t >= 0; }));
  };
  runner.run({shorter.tokens, shorter.targets, shorter.document_starts}, 1.0 / counted(shorter));
  EXPECT_THROW(runner.run({c.tokens, c.targets, c.document_starts}, 1.0,
                          [calls = 0]() mutable { return ++calls > 4; }),
               Interrupted);
  gradients.zero();
  const std::int64_t allocated = device->allocated_bytes();
  runner.run({c.tokens, c.targets, c.document_starts}, 1.0 / counted(c));
  EXPECT_TRUE(same_bits(gradients, *fresh.gradients));
  EXPECT_EQ(device->allocated_bytes(), allocated);
  EXPECT_EQ(runner.store().kv_pool().in_use(), 0);
  EXPECT_EQ(runner.store().gradient_pool().in_use(), 0);
}

// Several sequences of a step share one mean.
TEST(StepBits, GradientsOfSequencesAddUp) {
  const auto device = make_cpu_device();
  RandomCase c = long_case(3);
  c.config.windows.assign(static_cast<std::size_t>(c.config.layers), 0);
  const auto weights = random_weights(*device, c.config, 3);
  c.document_starts = {0, 128};
  c.targets[127] = -100;
  const StepOutcome packed = run_step(*device, c, *weights, 64, 32, 1);

  ParameterSet sum(*device, c.config, DType::kF32, "gradients");
  StepRunner runner =
      planned_runner(c.config, *weights, sum, choose_numerics(*device, c.config, 64, 32), {290, 1});
  const double scale = 1.0 / static_cast<double>(packed.result.targets);
  const std::vector<std::int64_t> whole = {0};
  double loss = 0;
  const std::span tokens(c.tokens), targets(c.targets);
  loss += runner.run({tokens.subspan(0, 128), targets.subspan(0, 128), whole}, scale).loss_sum;
  loss += runner.run({tokens.subspan(128), targets.subspan(128), whole}, scale).loss_sum;
  EXPECT_NEAR(loss, packed.result.loss_sum, 1e-9 * loss);
  for (std::int64_t i = 0; i < sum.size(); ++i)
    EXPECT_LT(relative_error(sum.view(i).as<float>(), packed.gradients->view(i).as<float>(),
                             sum.view(i).elements()),
              1e-5)
        << sum.specs()[static_cast<std::size_t>(i)].name;
}

}  // namespace
}  // namespace longstride
