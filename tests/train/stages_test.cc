// A pipeline of stages, each on a thread of its own, gives the bits of one process.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "comm/thread_link.h"
#include "model/file_tensors.h"
#include "model/stage_parts.h"
#include "model/tied_head.h"
#include "tests/data/temp_directory.h"
#include "tests/train/step_fixture.h"
#include "tests/train/watched_device.h"
#include "train/linked_stages.h"
#include "train/optimizer.h"
#include "train/state_slices.h"
#include "train/tied_stages.h"

namespace longstride {
namespace {

using Gradients = std::map<std::string, std::vector<float>>;

struct Outcome {
  Gradients gradients, weights;  // of the last step, and after it
  double loss = 0;
  std::vector<float> losses;
  std::vector<std::int64_t> sent;  // by rank
};

void collect(const ParameterSet& set, Gradients& all) {
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const ParameterSpec& spec = set.specs()[static_cast<std::size_t>(i)];
    const View view = set.view(i);
    if (!view.present()) continue;
    const std::vector<float> values(view.as<float>(), view.as<float>() + view.elements());
    // A copy has the name of its original, and its values.
    const auto [at, is_new] = all.emplace(spec.name, values);
    EXPECT_TRUE(is_new || at->second == values) << spec.name;
  }
}

struct Setting {
  std::int64_t chunk = 32, page = 16, keep_chunks = 1;
  NumericsChoice choice = {};
  bool rebuild = false, evaluate = false;
  std::int64_t host_activations = 0;  // bytes for the inputs of chunks, off the device
  std::int64_t steps = 1;             // each with an update
  std::int64_t sequences = 1;         // of a step
  bool frozen_embedding = false;
  bool staged = false;  // devices with memory of their own, and late copies
};

std::vector<ParameterSpec> specs_of(const RandomCase& c, const Setting& s) {
  std::vector<ParameterSpec> specs = parameter_specs(c.config);
  specs[0].trainable = !s.frozen_embedding;
  sum_head_apart(specs);
  return specs;
}

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
    const auto watched = std::make_unique<WatchedDevice>();
    watched->has_own_memory = true;
    watched->watch.seed = rank;
    const std::unique_ptr<Device> plain = make_cpu_device();
    Device* const device = s.staged ? static_cast<Device*>(watched.get()) : plain.get();
    const std::vector<ParameterSpec> specs = specs_of(c, s);
    NumericsChoice choice = s.choice;
    choice.tied_apart = sums_head_apart(specs);
    const NumericsRecord numerics = choose_numerics(*device, c.config, s.chunk, s.page, choice);
    const StageParts parts = stage_parts(c.config, specs, numerics, cuts[rank], cuts[rank + 1]);
    ParameterSet mine(*device, parts.parameters, "weights");
    for (std::int64_t i = 0; i < mine.size(); ++i)
      for (std::int64_t j = 0; j < weights.size(); ++j)
        if (weights.specs()[static_cast<std::size_t>(j)].name ==
            mine.specs()[static_cast<std::size_t>(i)].name)
          std::copy_n(weights.view(j).as<float>(), mine.view(i).elements(),
                      mine.view(i).as<float>());
    const std::int64_t before = device->allocated_bytes();
    ParameterSet gradients = ParameterSet::gradients(*device, parts.parameters);
    EXPECT_EQ(device->allocated_bytes() - before,
              ParameterSet::gradient_bytes_needed(parts.parameters));
    TiedStages tied(*device, link, parts.parameters);
    Optimizer optimizer(mine, {});
    const StepOptions options = options_of(c, s, parts);
    StepPlan plan = plan_step(*device, parts.config, parts.parameters, parts.numerics, options);
    LinkedStages neighbours(*device, link,
                            s.chunk * c.config.hidden_size * size_of(numerics.compute));
    StepRunner runner(parts.config, mine, gradients, parts.numerics, std::move(plan), nullptr,
                      &neighbours);
    if (!parts.stage.sends) runner.record_losses();
    SequenceInput input{c.tokens, c.targets, c.document_starts};
    input.rounding = 5;
    SequenceResult result;
    for (std::int64_t step = 1; step <= s.steps; ++step) {
      gradients.zero();
      for (std::int64_t i = 0; i < s.sequences; ++i) {
        result = s.evaluate ? runner.evaluate(input) : runner.run(input, 1.0 / 64);
        neighbours.finish();
      }
      if (s.evaluate) continue;
      tied.fold(gradients);
      optimizer.update(gradients, 0.01, 0.5, step);
      tied.share(mine);
    }
    EXPECT_EQ(watched->watch.races, 0);
    EXPECT_EQ(watched->watch.copies > 0, s.staged && ranks > 1);
    const std::scoped_lock lock(mutex);
    collect(gradients, all.gradients);
    collect(mine, all.weights);
    all.sent[rank] = link.counters().all_sent();
    if (parts.stage.sends) return;
    all.loss = result.loss_sum;
    all.losses.assign(runner.losses().begin(), runner.losses().end());
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return all;
}

RandomCase case_of(std::uint64_t seed, std::int64_t tokens, bool tied = false) {
  Random random(seed, 12);
  RandomCase c;
  c.config = random_config(random);
  c.config.layers = 4;
  c.config.windows = {0, 20, 0, 50};
  vary_family(c.config, seed);
  c.config.tied_embeddings = tied;
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
    EXPECT_TRUE(stages.weights == one.weights) << cuts.size() - 1 << " stages";
    // Each boundary is crossed once forward, and once back. A tied embedding's gradient goes to the
    // first stage and its weight to the last, once per step.
    const std::int64_t bytes =
                           s.steps * s.sequences * std::ssize(c.tokens) * c.config.hidden_size * 4,
                       shared = c.config.tied_embeddings && !s.frozen_embedding && !s.evaluate
                                    ? s.steps * c.config.vocabulary * c.config.hidden_size * 4
                                    : 0;
    for (std::size_t rank = 0; rank < stages.sent.size(); ++rank) {
      const bool last = rank + 1 == stages.sent.size();
      const std::int64_t ways = (last ? 0 : 1) + (rank == 0 || s.evaluate ? 0 : 1);
      EXPECT_EQ(stages.sent[rank], ways * bytes + (rank == 0 || last ? shared : 0))
          << "rank " << rank;
    }
  }
}

TEST(Stages, GiveTheBitsOfOneProcess) {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const std::int64_t keep : {1, 3})
      expect_one_process(case_of(seed, 170), {.keep_chunks = keep, .rebuild = seed % 2 == 1}, seed);
}

TEST(Stages, CopiesMayBeLate) {
  expect_one_process(case_of(20, 170), {.keep_chunks = 2, .sequences = 2, .staged = true}, 20);
  expect_one_process(case_of(21, 100, true), {.steps = 2, .staged = true}, 21);
  expect_one_process(case_of(22, 130), {.evaluate = true, .staged = true}, 22);
  Setting sparse{.staged = true};
  sparse.choice.sparse.budgets = {4, SparseLayers::kNone, 3, 4};
  sparse.choice.sparse.selection = {
      .sinks = 1, .recent = 1, .union_pages = 6, .summary_tokens = 16};
  expect_one_process(case_of(23, 290), sparse, 23);
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

TEST(Stages, ShareATiedEmbedding) {
  for (std::uint64_t seed = 10; seed < 14; ++seed)
    expect_one_process(case_of(seed, 100, true),
                       {.keep_chunks = 1 + static_cast<std::int64_t>(seed % 2),
                        .steps = 3,
                        .sequences = 1 + static_cast<std::int64_t>(seed % 3)},
                       seed);
}

TEST(Stages, ATiedEmbeddingMayBeFrozen) {
  expect_one_process(case_of(14, 100, true), {.steps = 2, .frozen_embedding = true}, 14);
}

TEST(Stages, EvaluateATiedModel) {
  expect_one_process(case_of(15, 100, true), {.evaluate = true}, 15);
}

// Those of records that are older than the flag.
TEST(Stages, GradientsSummedTogetherAreNotCut) {
  const auto device = make_cpu_device();
  const RandomCase c = case_of(16, 100, true);
  const std::vector<ParameterSpec> specs = parameter_specs(c.config);
  const NumericsRecord numerics = choose_numerics(*device, c.config, 32, 16);
  EXPECT_EQ(stage_parts(c.config, specs, numerics, 0, 4).parameters.size(), specs.size());
  for (const std::int64_t first : {0, 1, 2})
    EXPECT_TRUE(says(error_of([&] { stage_parts(c.config, specs, numerics, first, first + 2); }),
                     {"model.embed_tokens.weight is the head too", "cannot be cut", "one stage"}))
        << first;
}

// A copy is in no file, and the optimizer leaves it alone.
TEST(Stages, ACopyIsNeitherTrainedNorSaved) {
  const auto device = make_cpu_device();
  const RandomCase c = case_of(17, 100, true);
  const std::vector<ParameterSpec> specs = specs_of(c, {});
  NumericsChoice choice;
  choice.tied_apart = true;
  const NumericsRecord numerics = choose_numerics(*device, c.config, 32, 16, choice);
  const StageParts first = stage_parts(c.config, specs, numerics, 0, 1),
                   last = stage_parts(c.config, specs, numerics, 1, 4);
  ASSERT_EQ(first.parameters.size() + last.parameters.size(), specs.size() + 1);
  EXPECT_EQ(last.parameters.back().name, specs[0].name);
  std::vector<std::string> all, cut;
  for (const FileTensor& tensor : file_tensors(specs)) all.push_back(tensor.name);
  for (const StageParts* parts : {&first, &last})
    for (const FileTensor& tensor : file_tensors(parts->parameters)) cut.push_back(tensor.name);
  EXPECT_EQ(cut, all);
  const auto state = [](const std::vector<ParameterSpec>& list) {
    return cut_state(list, adamw_columns(list, {}), 256).slices.back().pieces.back().parameter;
  };
  EXPECT_EQ(state(last.parameters), std::ssize(last.parameters) - 2);
}

// More than one piece, and weights in another type than gradients.
TEST(Stages, ATiedEmbeddingTravelsInPieces) {
  const std::vector<ParameterSpec> whole = {{.name = "embedding",
                                             .shape = {9001, 1021},
                                             .dtype = DType::kBF16,
                                             .place = {.at_top = &ModelParameters::embedding},
                                             .head_apart = true}};
  ASSERT_LT(2 * ParameterSet::arriving_rows(whole[0].shape), whole[0].shape[0]);
  const auto value = [](std::int64_t i, int rank) {
    return static_cast<float>(((i * 7919) % 1009) - 500 + rank * 1000);
  };
  comm::ThreadHub hub(3);
  const auto failures = comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& link) {
    const auto device = make_cpu_device();
    const int rank = link.rank();
    std::vector<ParameterSpec> specs;
    if (rank != 1) specs = whole;
    if (rank == 0) specs[0].tied_part = TiedPart::kLookup;
    if (rank == 2) specs[0].tied_part = TiedPart::kHeadCopy;
    if (rank == 2) specs[0].trainable = false;
    TiedStages tied(*device, link, specs);
    ParameterSet gradients = ParameterSet::gradients(*device, specs);
    ParameterSet weights(*device, specs, "weights");
    const std::int64_t n = whole[0].shape.elements();
    if (rank != 1) {
      const View gradient = rank == 0 ? gradients.view(0) : gradients.head_gradient();
      float* const g = gradient.as<float>();
      auto* const w = static_cast<std::uint16_t*>(weights.view(0).data());
      for (std::int64_t i = 0; i < n; ++i) g[i] = value(i, rank);
      for (std::int64_t i = 0; i < n; ++i) w[i] = static_cast<std::uint16_t>(i * 31 + rank);
    }
    tied.fold(gradients);
    tied.share(weights);
    EXPECT_EQ(link.counters().all_sent(), tied.fold_bytes() + tied.share_bytes());
    EXPECT_EQ(link.counters().all_sent(), rank == 0 ? 2 * n : rank == 1 ? 0 : 4 * n);
    std::int64_t wrong = 0;
    if (rank == 0) {
      const float* const sum = gradients.view(0).as<float>();
      for (std::int64_t i = 0; i < n; ++i) wrong += sum[i] != value(i, 0) + value(i, 2);
    }
    if (rank == 2) {
      const float* const left = gradients.head_gradient().as<float>();
      const auto* const w = static_cast<const std::uint16_t*>(weights.view(0).data());
      for (std::int64_t i = 0; i < n; ++i)
        wrong += left[i] != 0 || w[i] != static_cast<std::uint16_t>(i * 31);
    }
    EXPECT_EQ(wrong, 0) << "rank " << rank;
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace
}  // namespace longstride
