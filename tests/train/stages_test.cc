// A pipeline of stages, each on a thread of its own, gives the bits of one process.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "comm/thread_link.h"
#include "model/stage_parts.h"
#include "tests/train/step_fixture.h"
#include "train/linked_stages.h"

namespace longstride {
namespace {

using Gradients = std::map<std::string, std::vector<float>>;

struct Outcome {
  Gradients gradients;
  double loss = 0;
  std::vector<float> losses;
  std::vector<std::int64_t> sent;  // by rank
};

void collect(const ParameterSet& set, Gradients& all) {
  for (std::int64_t i = 0; i < set.size(); ++i)
    if (const View view = set.view(i); view.present())
      all[set.specs()[static_cast<std::size_t>(i)].name].assign(view.as<float>(),
                                                                view.as<float>() + view.elements());
}

struct Setting {
  std::int64_t chunk = 32, page = 16, keep_chunks = 1;
  NumericsChoice choice = {};
  bool rebuild = false, evaluate = false;
  std::int64_t host_activations = 0;  // bytes for the inputs of chunks, off the device
};

StepOptions options_of(const RandomCase& c, const Setting& s, const StageParts& parts) {
  StepOptions options{.max_tokens = std::ssize(c.tokens),
                      .keep_chunks = s.keep_chunks,
                      .within_episode = within_episode(s.rebuild),
                      .packed = c.document_starts.size() > 1,
                      .evaluates = s.evaluate,
                      .stage = parts.stage};
  if (s.host_activations == 0) return options;
  const std::int64_t chunks = (options.max_tokens + s.chunk - 1) / s.chunk;
  options.offloaded.resize(static_cast<std::size_t>(chunks * parts.config.layers));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    options.offloaded[static_cast<std::size_t>(chunk * parts.config.layers)] = {Retained::kInput};
  options.activations.host = s.host_activations;
  return options;
}

// `cuts`: where stages begin, from 0, and the number of layers.
Outcome run(const RandomCase& c, const ParameterSet& weights, const Setting& s,
            const std::vector<std::int64_t>& cuts) {
  const int ranks = static_cast<int>(cuts.size()) - 1;
  Outcome all;
  all.sent.resize(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  comm::ThreadHub hub(ranks);
  const auto failures = comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& link) {
    const auto rank = static_cast<std::size_t>(link.rank());
    const auto device = make_cpu_device();
    const NumericsRecord numerics = choose_numerics(*device, c.config, s.chunk, s.page, s.choice);
    const StageParts parts =
        stage_parts(c.config, weights.specs(), numerics, cuts[rank], cuts[rank + 1]);
    ParameterSet mine(*device, parts.parameters, "weights");
    for (std::int64_t i = 0; i < mine.size(); ++i)
      for (std::int64_t j = 0; j < weights.size(); ++j)
        if (weights.specs()[static_cast<std::size_t>(j)].name ==
            mine.specs()[static_cast<std::size_t>(i)].name)
          std::copy_n(weights.view(j).as<float>(), mine.view(i).elements(),
                      mine.view(i).as<float>());
    ParameterSet gradients = ParameterSet::gradients(*device, parts.parameters);
    gradients.zero();
    const StepOptions options = options_of(c, s, parts);
    StepPlan plan = plan_step(*device, parts.config, parts.parameters, parts.numerics, options);
    LinkedStages neighbours(*device, link,
                            s.chunk * c.config.hidden_size * size_of(numerics.compute));
    StepRunner runner(parts.config, mine, gradients, parts.numerics, std::move(plan), nullptr,
                      &neighbours);
    if (!parts.stage.sends) runner.record_losses();
    SequenceInput input{c.tokens, c.targets, c.document_starts};
    input.rounding = 5;
    const SequenceResult result = s.evaluate ? runner.evaluate(input) : runner.run(input, 1.0 / 64);
    neighbours.finish();
    const std::scoped_lock lock(mutex);
    collect(gradients, all.gradients);
    all.sent[rank] = link.counters().all_sent();
    if (parts.stage.sends) return;
    all.loss = result.loss_sum;
    all.losses.assign(runner.losses().begin(), runner.losses().end());
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return all;
}

RandomCase case_of(std::uint64_t seed, std::int64_t tokens) {
  Random random(seed, 12);
  RandomCase c;
  c.config = random_config(random);
  c.config.layers = 4;
  c.config.windows = {0, 20, 0, 50};
  vary_family(c.config, seed);
  c.config.tied_embeddings = false;
  fill_sequence(c, random, tokens, 1 + random.below(3), 5);
  return c;
}

const std::vector<std::vector<std::int64_t>> kCuts = {
    {0, 1, 4}, {0, 3, 4}, {0, 2, 3, 4}, {0, 1, 2, 3, 4}};

void expect_one_process(const RandomCase& c, const Setting& s, std::uint64_t seed) {
  const auto device = make_cpu_device();
  const auto weights = random_weights(*device, c.config, seed);
  const Outcome one = run(c, *weights, s, {0, 4});
  ASSERT_GT(one.losses.size(), 0u);
  for (const std::vector<std::int64_t>& cuts : kCuts) {
    const Outcome stages = run(c, *weights, s, cuts);
    EXPECT_EQ(stages.loss, one.loss);
    EXPECT_EQ(stages.losses, one.losses);
    EXPECT_TRUE(stages.gradients == one.gradients) << cuts.size() - 1 << " stages";
    // Each boundary is crossed once forward, and once back.
    const std::int64_t bytes = std::ssize(c.tokens) * c.config.hidden_size * 4;
    for (std::size_t rank = 0; rank < stages.sent.size(); ++rank) {
      const bool last = rank + 1 == stages.sent.size();
      const std::int64_t ways = (last ? 0 : 1) + (rank == 0 || s.evaluate ? 0 : 1);
      EXPECT_EQ(stages.sent[rank], ways * bytes) << "rank " << rank;
    }
  }
}

TEST(Stages, GiveTheBitsOfOneProcess) {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const std::int64_t keep : {1, 3})
      expect_one_process(case_of(seed, 170), {.keep_chunks = keep, .rebuild = seed % 2 == 1}, seed);
}

TEST(Stages, OneChunkIsEnough) { expect_one_process(case_of(5, 20), {}, 5); }

TEST(Stages, InputsMayWaitInHostMemory) {
  expect_one_process(case_of(6, 170), {.host_activations = 1 << 20}, 6);
}

TEST(Stages, EvaluateToTheSameLosses) {
  expect_one_process(case_of(7, 130), {.evaluate = true}, 7);
}

// Rounding depends on the layer's number in the model.
TEST(Stages, RoundGradientPagesAlike) {
  Setting s;
  s.choice.kv_gradient_dtype = "bf16";
  expect_one_process(case_of(8, 170), s, 8);
}

TEST(Stages, SelectTheSamePages) {
  Setting s;
  s.choice.sparse.budgets = {4, SparseLayers::kNone, 3, 4};
  s.choice.sparse.selection = {.sinks = 1, .recent = 1, .union_pages = 6, .summary_tokens = 16};
  for (const std::int64_t keep : {1, 2}) {
    s.keep_chunks = keep;
    expect_one_process(case_of(9, 290), s, 9);
  }
}

}  // namespace
}  // namespace longstride
