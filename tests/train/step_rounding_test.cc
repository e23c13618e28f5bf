// Gradient pages in BF16, rounded stochastically: the bits depend only on the sequence's key and on
// positions, the gradients stay close to those of F32 pages, and there is no bias.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "tensor/stochastic_round.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

const NumericsChoice kBf16{.kv_gradient_dtype = "bf16"};

RandomCase long_case(std::uint64_t seed) {
  Random random(seed, 3);
  RandomCase c;
  c.config = random_config(random);
  c.config.windows.assign(static_cast<std::size_t>(c.config.layers), seed % 2 == 0 ? 0 : 100);
  fill_sequence(c, random, 290, 2, 5);
  return c;
}

StepOutcome run(Device& device, const RandomCase& c, const ParameterSet& weights,
                std::uint64_t rounding, std::int64_t keep = 1,
                const NumericsChoice& choice = kBf16) {
  return run_step(device, c, weights, 32, 16, keep, 0, false, choice, rounding);
}

TEST(StepRounding, NoPlanAndNoThreadsChangeABit) {
  const auto device = make_cpu_device();
  const int before = thread_count();
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const RandomCase c = long_case(seed);
    const auto weights = random_weights(*device, c.config, seed);
    const StepOutcome first = run(*device, c, *weights, 5);
    for (const std::int64_t keep : {1, 2, 3, 9, 100})
      EXPECT_TRUE(same_bits(*run(*device, c, *weights, 5, keep).gradients, *first.gradients))
          << "keep " << keep;
    for (const int threads : {1, 3, 5}) {
      set_thread_count(threads);
      EXPECT_TRUE(same_bits(*run(*device, c, *weights, 5).gradients, *first.gradients)) << threads;
    }
    set_thread_count(before);
    // The forward pass does not depend on it.
    EXPECT_EQ(run(*device, c, *weights, 5, 1, {}).losses, first.losses);
  }
}

TEST(StepRounding, EveryStepAndSequenceRoundsDifferently) {
  const auto device = make_cpu_device();
  const RandomCase c = long_case(0);
  const auto weights = random_weights(*device, c.config, 0);
  std::vector<StepOutcome> outcomes;
  for (const std::int64_t step : {1, 2})
    for (const std::int64_t sequence : {0, 1})
      outcomes.push_back(run(*device, c, *weights, mixed(mixed(7, step), sequence)));
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_FALSE(same_bits(*outcomes[i].gradients, *outcomes[j].gradients)) << i << " " << j;
  EXPECT_TRUE(same_bits(*run(*device, c, *weights, 1, 1, {}).gradients,
                        *run(*device, c, *weights, 2, 1, {}).gradients))
      << "F32 pages are not rounded";
}

TEST(StepRounding, PagesTakeHalf) {
  const auto device = make_cpu_device();
  const RandomCase c = long_case(0);
  const auto plan = [&](const NumericsChoice& choice) {
    return plan_step(*device, c.config, parameter_specs(c.config),
                     choose_numerics(*device, c.config, 32, 16, choice), {290, 1})
        .memory;
  };
  const StepMemory exact = plan({}), half = plan(kBf16);
  EXPECT_EQ(2 * half.kv_gradient_pages, exact.kv_gradient_pages);
  EXPECT_EQ(half.kv_pages, exact.kv_pages);
  EXPECT_EQ(half.workspace, exact.workspace);
}

// A small model over 64 chunks, so that the first page's sum is rounded 64 times. Measured,
// relative in the Frobenius norm: 0.4% for the worst weight (k_proj), 0.8% for its bias, whose
// terms cancel; below 0.2% elsewhere. The error of a single run is rounding noise: the mean over 16
// keys is 4 times closer to F32, as for independent errors. With rounding to nearest it would not
// be.
TEST(StepRounding, StaysCloseToF32OverManyChunks) {
  const auto device = make_cpu_device();
  RandomCase c;
  ModelConfig& m = c.config;
  m.layers = 2, m.kv_heads = 2, m.query_heads = 4, m.head_size = 16;
  m.hidden_size = 64, m.ffn_size = 128, m.vocabulary = 50;
  m.rms_eps = 1e-5, m.rope.theta = 1000, m.max_positions = 1 << 20;
  m.qkv_bias = true;
  m.windows = {0, 0};
  Random random(1, 4);
  fill_sequence(c, random, 64 * 32, 1, 0);
  ParameterSet weights(*device, m, DType::kF32, "weights");
  initialize_random(weights, m, 1);
  const StepOutcome exact = run(*device, c, weights, 0, 1, {});
  constexpr int kRuns = 16;
  ParameterSet mean(*device, m, DType::kF32, "gradients");
  mean.zero();
  std::vector<double> single(static_cast<std::size_t>(mean.size()), 0.0);
  for (std::int64_t i = 0; i < kRuns; ++i) {
    const StepOutcome close = run(*device, c, weights, mixed(3, i));
    for (std::int64_t p = 0; p < mean.size(); ++p) {
      const View got = close.gradients->view(p);
      const double error =
          relative_error(got.as<float>(), exact.gradients->view(p).as<float>(), got.elements());
      EXPECT_LT(error, 0.02) << mean.specs()[static_cast<std::size_t>(p)].name;
      single[static_cast<std::size_t>(p)] += error / kRuns;
      for (std::int64_t e = 0; e < got.elements(); ++e)
        mean.view(p).as<float>()[e] += got.as<float>()[e] / kRuns;
    }
  }
  for (std::int64_t p = 0; p < mean.size(); ++p) {
    const std::string& name = mean.specs()[static_cast<std::size_t>(p)].name;
    const double error = relative_error(
        mean.view(p).as<float>(), exact.gradients->view(p).as<float>(), mean.view(p).elements());
    EXPECT_LT(error, 0.5 * single[static_cast<std::size_t>(p)] + 1e-6) << name;
  }
}

}  // namespace
}  // namespace longstride
