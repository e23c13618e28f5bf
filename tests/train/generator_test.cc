#include "train/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/model/fixtures.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

using testing::expect_error;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kPage = 16;

SparseLayers sparse_layers(std::int64_t layers) {
  SparseLayers sparse;
  sparse.budgets.assign(static_cast<std::size_t>(layers), 3);
  sparse.budgets[0] = SparseLayers::kNone;
  sparse.selection = {.sinks = 1, .recent = 1, .union_pages = 3, .summary_tokens = 8};
  return sparse;
}

struct Model {
  ModelConfig config;
  std::unique_ptr<Device> device = make_cpu_device();
  ParameterSet weights;

  explicit Model(std::uint64_t seed)
      : config(make_config(seed)), weights(*device, config, DType::kF32, "weights") {
    config.initializer_range = 0.5;
    initialize_random(weights, config, seed);
  }
  static ModelConfig make_config(std::uint64_t seed) {
    Random random(seed, 5);
    ModelConfig config = random_config(random);
    config.layers = 3;
    config.windows = {0, seed % 2 == 0 ? 20 : 0, 0};
    return config;
  }
  NumericsRecord numerics(std::int64_t chunk, bool sparse) const {
    NumericsChoice choice;
    if (sparse) choice.sparse = sparse_layers(config.layers);
    return choose_numerics(*device, config, chunk, kPage, choice);
  }
  Tokens prompt(std::int64_t count) const {
    Random random(9);
    Tokens tokens(static_cast<std::size_t>(count));
    for (std::int32_t& t : tokens)
      t = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(config.vocabulary)));
    return tokens;
  }
};

// Whether each of `tokens` from number `from` on has the largest logit in a forward pass over those
// before it.
void expect_preferred(const Model& m, const Tokens& tokens, std::size_t from, bool sparse) {
  std::vector<ParameterSpec> frozen = m.weights.specs();
  for (ParameterSpec& spec : frozen) spec.trainable = false;
  const ParameterSet none = ParameterSet::gradients(*m.device, frozen);
  const NumericsRecord numerics = m.numerics(sparse ? kPage : 4 * kPage, sparse);
  StepRunner runner(m.config, m.weights, none, numerics,
                    plan_step(*m.device, m.config, frozen, numerics,
                              {.max_tokens = std::ssize(tokens), .forward_only = true}));
  runner.record_losses();
  Tokens targets(tokens.begin() + 1, tokens.end());
  const std::vector<std::int64_t> documents = {0};
  const auto evaluate = [&](std::size_t count) {
    runner.evaluate({std::span(tokens).first(count), std::span(targets).first(count), documents});
  };
  if (!sparse) evaluate(targets.size());
  for (std::size_t t = from; t < tokens.size(); ++t) {
    if (sparse) evaluate(t);
    EXPECT_NE(runner.correct()[t - 1], 0) << "token " << t;
  }
}

// A page of queries selects its pages together: so with sparse layers what a token prefers is that
// of a pass which ends with it, cut page by page as the generator's is.
TEST(Generator, GivesTheTokensThatAFullPassPrefers) {
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    for (const bool sparse : {false, true}) {
      SCOPED_TRACE(fmt::format("seed {} sparse {}", seed, sparse));
      const Model m(seed);
      const std::int64_t count = 50, length = 37 + 11 * static_cast<std::int64_t>(seed);
      Generator generator(m.config, m.weights, m.numerics(sparse ? kPage : 2 * kPage, sparse),
                          length + count);
      Tokens tokens = m.prompt(length);
      generator.extend(tokens);
      const Tokens made = generate(generator, {.count = count});
      ASSERT_EQ(std::ssize(made), count);
      tokens.insert(tokens.end(), made.begin(), made.end());
      expect_preferred(m, tokens, static_cast<std::size_t>(length), sparse);
    }
}

TEST(Generator, AllocatesNothingWhileItRuns) {
  const Model m(3);
  Generator generator(m.config, m.weights, m.numerics(2 * kPage, true), 200);
  const std::int64_t before = m.device->allocated_bytes();
  generator.extend(m.prompt(130));
  generate(generator, {.count = 40});
  EXPECT_EQ(m.device->allocated_bytes(), before);
}

TEST(Generator, AnInterruptedExtensionChangesNothing) {
  const Model m(1);
  Generator generator(m.config, m.weights, m.numerics(2 * kPage, false), 300);
  const Tokens prompt = m.prompt(150);
  const std::span<const std::int32_t> all(prompt);
  generator.extend(all.first(75));
  for (const int tasks : {0, 3, 9, 15}) {
    int left = tasks;
    EXPECT_THROW(generator.extend(all.subspan(75), [&] { return left-- == 0; }), Interrupted);
    EXPECT_EQ(generator.tokens().size(), 75u);
  }
  generator.extend(all.subspan(75));
  const Tokens after = generate(generator, {.count = 20});
  generator.clear();
  generator.extend(all);
  EXPECT_EQ(generate(generator, {.count = 20}), after);
}

TEST(Generator, StopsAtAStopToken) {
  const Model m(2);
  Generator generator(m.config, m.weights, m.numerics(2 * kPage, false), 100);
  const Tokens prompt = m.prompt(20);
  generator.extend(prompt);
  Tokens seen;
  const Tokens all = generate(generator, {.count = 30}, [&](std::int32_t t) { seen.push_back(t); });
  EXPECT_EQ(seen, all);
  const auto at = std::ranges::find(all, all[7]) - all.begin();
  generator.clear();
  generator.extend(prompt);
  EXPECT_EQ(generate(generator, {.count = 30, .stop = {all[7]}}),
            Tokens(all.begin(), all.begin() + at + 1));
}

TEST(ChooseToken, TakesTheFirstOfTheLargest) {
  const std::vector<float> logits = {-1, 4, 2, 4, 3};
  EXPECT_EQ(choose_token(logits, 0, 0, 0), 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, std::numeric_limits<float>::infinity()}) {
    const std::vector<float> broken = {1, bad, 2};
    for (const double temperature : {0.0, 1.0})
      expect_error([&] { choose_token(broken, temperature, 0, 17); },
                   {"logit of token 1 at position 17"});
  }
}

TEST(ChooseToken, DrawsBySoftmax) {
  const std::vector<float> logits = {0.0f, 1.0f, -3.0f, 2.0f};
  const double temperature = 1.5;
  std::vector<double> weights;
  double total = 0;
  for (const float l : logits) total += weights.emplace_back(std::exp(l / temperature));
  std::vector<double> counts(logits.size());
  const int draws = 40'000;
  for (int i = 0; i < draws; ++i)
    ++counts[static_cast<std::size_t>(choose_token(logits, temperature, 3, i))];
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double p = weights[i] / total;
    EXPECT_NEAR(counts[i] / draws, p, 4 * std::sqrt(p * (1 - p) / draws)) << i;
  }
  // Seed and position decide, nothing else.
  bool differs_by_seed = false;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(choose_token(logits, 1.5, 3, i), choose_token(logits, 1.5, 3, i));
    differs_by_seed |= choose_token(logits, 1.5, 3, i) != choose_token(logits, 1.5, 4, i);
  }
  EXPECT_TRUE(differs_by_seed);
  // Cold: nearly always the largest, without overflow.
  const std::vector<float> large = {-30'000, 20'000, 19'000};
  EXPECT_EQ(choose_token(large, 1e-3, 0, 0), 1);
}

}  // namespace
}  // namespace longstride
