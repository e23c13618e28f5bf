// Weights of targets in a step: those of 0 and 1 are the mask's, to the bit; gradients are those of
// the weighted losses; a sequence that is scored first gives the gradients of one that is not.
#include <gtest/gtest.h>

#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 32, kPage = 16;

struct Case : RandomCase {
  NumericsChoice choice;
  std::vector<float> weights;
};

Case make_case(std::uint64_t seed, bool sparse) {
  Case c;
  Random random(9, seed);
  c.config = random_config(random);
  c.config.layers = 3;
  c.config.windows = {0, 20, 0};
  fill_sequence(c, random, 4 * kChunk + 5, sparse ? 1 : 3, 0);
  for (std::size_t t = 0; t < c.tokens.size(); ++t)
    c.weights.push_back(static_cast<float>(random.normal()));
  if (sparse) {
    c.choice.sparse.budgets = {3, SparseLayers::kNone, 3};
    c.choice.sparse.selection = {.sinks = 1, .recent = 1, .union_pages = 5, .summary_tokens = 8};
  }
  return c;
}

// A runner with gradients of its own.
struct Runner {
  Runner(Device& device, const Case& c, const ParameterSet& weights, StepOptions options)
      : gradients(device, c.config, DType::kF32, "gradients"),
        runner(make(device, c, weights, gradients, options)) {
    runner.record_losses();
  }
  static StepRunner make(Device& device, const Case& c, const ParameterSet& weights,
                         const ParameterSet& gradients, StepOptions options) {
    const NumericsRecord numerics = choose_numerics(device, c.config, kChunk, kPage, c.choice);
    options.max_tokens = std::ssize(c.tokens);
    options.packed = c.document_starts.size() > 1;
    if (options.pages.device == 0)
      options.pages.device =
          StepPlanner(device, c.config, weights.specs(), numerics, options).least_page_bytes();
    return planned_runner(c.config, weights, gradients, numerics, options);
  }
  std::vector<std::byte> bytes() const {
    return {gradients.data(), gradients.data() + gradients.bytes()};
  }

  ParameterSet gradients;
  StepRunner runner;
};

SequenceInput input_of(const Case& c) { return {c.tokens, c.targets, c.document_starts}; }

TEST(StepWeights, ZerosAndOnesAreTheMask) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Case c = make_case(seed, seed % 2 != 0);
    const auto device = make_cpu_device();
    const auto weights = random_weights(*device, c.config, seed);
    Case masked = c, weighed = c;
    for (std::size_t t = 0; t < c.tokens.size(); ++t) {
      weighed.weights[t] = t % 3 == 0 ? 0.0f : 1.0f;
      if (t % 3 == 0) masked.targets[t] = -100;
    }
    Runner plain(*device, masked, *weights, {}),
        other(*device, weighed, *weights, {.weighted = true});
    const SequenceResult want = plain.runner.run(input_of(masked), 0.25);
    SequenceInput input = input_of(weighed);
    input.weights = weighed.weights;
    const SequenceResult got = other.runner.run(input, 0.25);
    EXPECT_EQ(got.loss_sum, want.loss_sum);
    EXPECT_EQ(plain.bytes(), other.bytes());
    // Without weights, such a plan gives the bits of any other.
    other.gradients.zero();
    other.runner.run(input_of(masked), 0.25);
    EXPECT_EQ(plain.bytes(), other.bytes());
  }
}

// Gradients are linear in the weights.
TEST(StepWeights, GradientsAreThoseOfTheWeightedLosses) {
  const Case c = make_case(3, false);
  const auto device = make_cpu_device();
  const auto weights = random_weights(*device, c.config, 3);
  Runner all(*device, c, *weights, {.weighted = true}), parts(*device, c, *weights, {});
  SequenceInput input = input_of(c);
  input.weights = c.weights;
  const double loss = all.runner.run(input, 0.5).loss_sum;
  double sum = 0;
  for (std::size_t t = 0; t < c.tokens.size(); ++t) {
    if (c.targets[t] < 0) continue;
    std::vector<std::int32_t> one(c.targets.size(), -100);
    one[t] = c.targets[t];
    const auto weight = static_cast<double>(c.weights[t]);
    sum += weight * parts.runner.run({c.tokens, one, c.document_starts}, 0.5 * weight).loss_sum;
  }
  EXPECT_NEAR(loss, sum, 1e-4 * std::abs(sum));
  for (std::int64_t i = 0; i < all.gradients.size(); ++i)
    EXPECT_LT(relative_error(all.gradients.view(i).as<float>(), parts.gradients.view(i).as<float>(),
                             all.gradients.view(i).elements()),
              1e-4)
        << all.gradients.specs()[static_cast<std::size_t>(i)].name;
}

TEST(StepWeights, ClippedRatios) {
  const Case c = make_case(4, false);
  const auto device = make_cpu_device();
  const auto weights = random_weights(*device, c.config, 4);
  Runner ratios(*device, c, *weights, {.weighted = true}),
      plain(*device, c, *weights, {.weighted = true});
  plain.runner.run(input_of(c), 1.0);
  const std::vector<float> losses(plain.runner.losses().begin(), plain.runner.losses().end());
  plain.gradients.zero();
  constexpr double kRatios[] = {0.5, 0.9, 1.0, 1.1, 1.5};
  std::vector<float> earlier(losses.size()), effective(losses.size());
  double objective = 0;
  for (std::size_t t = 0; t < losses.size(); ++t) {
    const double ratio = kRatios[t % 5], w = static_cast<double>(c.weights[t]);
    earlier[t] = static_cast<float>(-static_cast<double>(losses[t]) - std::log(ratio));
    const bool held = w >= 0 ? ratio > 1.28 : ratio < 0.8;
    effective[t] = held ? 0.0f : static_cast<float>(ratio * w);
    if (c.targets[t] >= 0) objective -= std::min(ratio * w, std::clamp(ratio, 0.8, 1.28) * w);
  }
  SequenceInput input = input_of(c);
  input.weights = c.weights;
  input.earlier = earlier;
  input.clip = {0.2f, 0.28f};
  EXPECT_NEAR(ratios.runner.run(input, 0.5).loss_sum, objective, 1e-4 * std::abs(objective));
  input = input_of(c);
  input.weights = effective;
  plain.runner.run(input, 0.5);
  for (std::int64_t i = 0; i < ratios.gradients.size(); ++i)
    EXPECT_LT(
        relative_error(ratios.gradients.view(i).as<float>(), plain.gradients.view(i).as<float>(),
                       ratios.gradients.view(i).elements()),
        1e-4);
}

TEST(StepWeights, AScoredSequenceHasTheGradientsOfAnyOther) {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const bool sparse : {false, true}) {
      const Case c = make_case(seed, sparse);
      const auto device = make_cpu_device();
      const auto weights = random_weights(*device, c.config, seed);
      const std::vector<Retention> all(15, Retention::all());
      for (const StepOptions& how : {StepOptions{},
                                     {.keep_chunks = 2},
                                     {.across_episodes = all},
                                     {.offloaded = all},
                                     {.pages = {0, PageBudget::kAll}}}) {
        StepOptions options = how;
        options.weighted = options.scores = true;
        Runner one(*device, c, *weights, options), two(*device, c, *weights, options);
        SequenceInput input = input_of(c);
        input.weights = c.weights;
        const std::int64_t allocated = device->allocated_bytes();
        const SequenceResult want = one.runner.run(input, 0.5);
        std::vector<float> seen;
        const SequenceResult got = two.runner.run_scored(
            input_of(c),
            [&](std::span<const float> losses) {
              seen.assign(losses.begin(), losses.end());
              return std::span<const float>(c.weights);
            },
            0.5);
        EXPECT_TRUE(std::ranges::equal(seen, one.runner.losses()));
        EXPECT_EQ(got.loss_sum, want.loss_sum);
        EXPECT_EQ(got.targets, want.targets);
        EXPECT_EQ(one.bytes(), two.bytes()) << seed << (sparse ? " sparse" : "");
        EXPECT_EQ(device->allocated_bytes(), allocated);
      }
    }
}

}  // namespace
}  // namespace longstride
