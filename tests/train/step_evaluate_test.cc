// An evaluation gives the losses of the training step to the bit, with the step's own memory or
// with that of a forward pass alone.
#include <gtest/gtest.h>

#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 32, kPage = 16;

struct Case : RandomCase {
  NumericsChoice choice;
};

Case make_case(std::uint64_t seed, bool sparse) {
  Case c;
  Random random(8, seed);
  c.config = random_config(random);
  c.config.layers = 3;
  c.config.windows = {0, 20, 0};
  fill_sequence(c, random, 4 * kChunk + 5, sparse ? 1 : 3, 4);
  if (sparse) {
    c.choice.sparse.budgets = {3, SparseLayers::kNone, 3};
    c.choice.sparse.selection = {.sinks = 1, .recent = 1, .union_pages = 5, .summary_tokens = 8};
  }
  return c;
}

struct Losses {
  std::vector<float> losses;
  std::vector<char> correct;
  double sum = 0;
  std::int64_t targets = 0, right = 0;
  bool operator==(const Losses&) const = default;
};

Losses losses_of(const StepRunner& runner, const SequenceResult& result) {
  return {{runner.losses().begin(), runner.losses().end()},
          {runner.correct().begin(), runner.correct().end()},
          result.loss_sum,
          result.targets,
          result.correct};
}

// The targets that follow the last one of a cut sequence are the same.
SequenceInput first(const Case& c, std::size_t tokens, const std::vector<std::int64_t>& starts) {
  return {std::span(c.tokens).first(tokens), std::span(c.targets).first(tokens), starts};
}

std::vector<std::int64_t> starts_before(const Case& c, std::size_t tokens) {
  std::vector<std::int64_t> starts = c.document_starts;
  std::erase_if(starts, [&](std::int64_t s) { return s >= static_cast<std::int64_t>(tokens); });
  return starts;
}

TEST(StepEvaluate, GivesTheLossesOfTheStep) {
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    for (const bool sparse : {false, true}) {
      const Case c = make_case(seed, sparse);
      const auto device = make_cpu_device();
      const auto weights = random_weights(*device, c.config, seed);
      ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
      const NumericsRecord numerics = choose_numerics(*device, c.config, kChunk, kPage, c.choice);
      const std::vector<Retention> all(15, Retention::all());
      for (const StepOptions& how : {StepOptions{.keep_chunks = 2},
                                     {.across_episodes = all},
                                     {.offloaded = all},
                                     {.pages = {0, PageBudget::kAll}}}) {
        StepOptions options = how;
        options.max_tokens = std::ssize(c.tokens);
        options.evaluates = true;
        options.packed = c.document_starts.size() > 1;
        if (options.pages.device == 0)
          options.pages.device = StepPlanner(*device, c.config, weights->specs(), numerics, options)
                                     .least_page_bytes();
        StepRunner runner = planned_runner(c.config, *weights, gradients, numerics, options);
        runner.record_losses();
        const std::int64_t allocated = device->allocated_bytes();
        for (const std::size_t tokens : {c.tokens.size(), std::size_t{20}, c.tokens.size()}) {
          const std::vector<std::int64_t> starts = starts_before(c, tokens);
          gradients.zero();
          const Losses step = losses_of(runner, runner.run(first(c, tokens, starts), 1.0));
          const std::vector<std::byte> before(gradients.data(),
                                              gradients.data() + gradients.bytes());
          const Losses alone = losses_of(runner, runner.evaluate(first(c, tokens, starts)));
          EXPECT_TRUE(step == alone) << seed << (sparse ? " sparse" : "");
          EXPECT_GT(alone.targets, 0);
          EXPECT_TRUE(std::equal(before.begin(), before.end(), gradients.data()));
        }
        EXPECT_EQ(device->allocated_bytes(), allocated);
      }
    }
}

TEST(StepEvaluate, NeedsNoGradients) {
  for (const bool sparse : {false, true}) {
    const Case c = make_case(1, sparse);
    const auto device = make_cpu_device();
    const auto weights = random_weights(*device, c.config, 1);
    ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
    const NumericsRecord numerics = choose_numerics(*device, c.config, kChunk, kPage, c.choice);
    const auto runner_with = [&](const ParameterSet& into, bool forward_only) {
      return planned_runner(
          c.config, *weights, into, numerics,
          {.max_tokens = std::ssize(c.tokens), .packed = true, .forward_only = forward_only});
    };
    StepRunner step = runner_with(gradients, false);
    step.record_losses();
    const SequenceInput input{c.tokens, c.targets, c.document_starts};
    const Losses want = losses_of(step, step.run(input, 1.0));
    std::vector<ParameterSpec> frozen = parameter_specs(c.config);
    for (ParameterSpec& spec : frozen) spec.trainable = false;
    const ParameterSet none = ParameterSet::gradients(*device, frozen);
    EXPECT_EQ(none.bytes(), 0);
    StepRunner alone = runner_with(none, true);
    alone.record_losses();
    EXPECT_TRUE(losses_of(alone, alone.evaluate(input)) == want);
    EXPECT_EQ(alone.memory().kv_gradient_pages, 0);
    EXPECT_LT(alone.memory().workspace, step.memory().workspace);
  }
}

}  // namespace
}  // namespace longstride
