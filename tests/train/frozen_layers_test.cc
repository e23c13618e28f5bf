// Layers below the lowest trained one have no backward pass, and what is trained above keeps its
// bits, wherever pages and activations are kept.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 32, kPage = 16, kLayers = 3, kChunks = 5;

struct Case : RandomCase {
  NumericsChoice choice;
};

Case make_case(bool qk_norm, bool sparse) {
  Case c;
  Random random(6, qk_norm ? 1 : 0);
  c.config = random_config(random);
  c.config.layers = kLayers;
  c.config.windows = {0, 20, 0};
  c.config.qk_norm = qk_norm;
  c.config.tied_embeddings = false;  // a tied head trains the embedding
  fill_sequence(c, random, (kChunks - 1) * kChunk + 5, 1, 4);
  if (sparse) {
    c.choice.sparse.budgets = {3, SparseLayers::kNone, 3};
    c.choice.sparse.selection = {.sinks = 1, .recent = 1, .union_pages = 5, .summary_tokens = 8};
  }
  return c;
}

// Trains layers from `first` on, the final norm and the head.
std::vector<ParameterSpec> trained_from(const ModelConfig& config, std::int64_t first) {
  std::vector<ParameterSpec> specs = parameter_specs(config);
  for (ParameterSpec& spec : specs)
    spec.trainable = spec.place.layer >= first ||
                     spec.place.at_top == &ModelParameters::final_norm ||
                     spec.place.at_top == &ModelParameters::head;
  return specs;
}

struct Outcome {
  std::vector<float> losses;
  std::vector<std::vector<std::byte>> gradients;  // empty: frozen
  StepMemory memory;
};

Outcome run(const Case& c, const std::vector<ParameterSpec>& specs, StepOptions options) {
  const auto device = make_cpu_device();
  const auto all = random_weights(*device, c.config, 3);
  ParameterSet weights(*device, specs, "weights");
  std::copy_n(all->data(), all->bytes(), weights.data());
  ParameterSet gradients = ParameterSet::gradients(*device, specs);
  options.max_tokens = std::ssize(c.tokens);
  StepRunner runner =
      planned_runner(c.config, weights, gradients,
                     choose_numerics(*device, c.config, kChunk, kPage, c.choice), options);
  runner.record_losses();
  const std::int64_t allocated = device->allocated_bytes();
  // Shorter sequences first.
  const std::vector<std::int64_t> one = {0};
  for (std::size_t tokens : {std::size_t{20}, std::size_t{2 * kChunk}, c.tokens.size()}) {
    gradients.zero();
    runner.run({std::span(c.tokens).first(tokens), std::span(c.targets).first(tokens), one}, 1.0);
  }
  EXPECT_EQ(device->allocated_bytes(), allocated);
  Outcome out{{runner.losses().begin(), runner.losses().end()}, {}, runner.memory()};
  for (std::int64_t i = 0; i < gradients.size(); ++i) {
    const View g = gradients.view(i);
    out.gradients.emplace_back();
    if (!g.present()) continue;
    out.gradients.back().resize(static_cast<std::size_t>(g.bytes()));
    std::memcpy(out.gradients.back().data(), g.data(), static_cast<std::size_t>(g.bytes()));
  }
  return out;
}

std::vector<StepOptions> ways() {
  const std::vector<Retention> inputs(kChunks * kLayers, Retention{Retained::kInput}),
      everything(kChunks * kLayers, Retention::all());
  PageBudget little;
  little.device = 0;  // replaced by the least
  little.host = PageBudget::kAll;
  return {{},
          {.keep_chunks = 2},
          {.keep_chunks = kChunks},
          {.within_episode = {Retained::kInput}},
          {.across_episodes = inputs},
          {.across_episodes = everything},
          {.offloaded = everything},
          {.within_episode = {Retained::kInput}, .offloaded = inputs},
          {.pages = little}};
}

void expect_same(const Case& c, const Outcome& full, std::int64_t first, StepOptions options) {
  const std::vector<ParameterSpec> specs = trained_from(c.config, first);
  if (options.pages.device == 0) {
    const auto device = make_cpu_device();
    options.max_tokens = std::ssize(c.tokens);
    options.pages.device =
        StepPlanner(*device, c.config, specs,
                    choose_numerics(*device, c.config, kChunk, kPage, c.choice), options)
            .least_page_bytes();
  }
  const Outcome part = run(c, specs, options);
  EXPECT_EQ(part.losses, full.losses) << first;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].trainable)
      EXPECT_TRUE(part.gradients[i] == full.gradients[i]) << specs[i].name << " from " << first;
    else
      EXPECT_TRUE(part.gradients[i].empty());
  }
}

TEST(FrozenLayers, TheOthersGradientsKeepTheirBits) {
  for (const bool qk_norm : {false, true})
    for (const bool sparse : {false, true}) {
      const Case c = make_case(qk_norm, sparse);
      const Outcome full = run(c, parameter_specs(c.config), {});
      for (std::int64_t first = 0; first <= kLayers; ++first)
        for (const StepOptions& options : ways()) expect_same(c, full, first, options);
    }
}

// Counts what a step does.
TEST(FrozenLayers, HaveNoBackwardPassAndNoGradientPages) {
  const SequenceLayout layout{kChunks * kChunk, kChunk, kPage, {0}};
  ScheduleOptions options{.windows = {0, 0, 0}};
  std::int64_t pages = layout.pages() * (kLayers + 1);
  for (std::int64_t first = 0; first <= kLayers; ++first) {
    options.first_trained_layer = first;
    const StepSchedule schedule = make_step_schedule(layout, options);
    EXPECT_LT(schedule.peak_gradient_pages, pages);
    pages = std::max<std::int64_t>(1, schedule.peak_gradient_pages);
    std::int64_t heads = 0;
    for (const Episode& episode : schedule.episodes)
      for (const Task& task : episode.tasks) {
        if (task.kind == TaskKind::kLayerBackward) {
          EXPECT_GE(task.layer, first);
        }
        if (task.kind == TaskKind::kHead) ++heads;
      }
    EXPECT_EQ(heads, layout.chunks());
    EXPECT_EQ(schedule.peak_kv_pages, layout.pages() * kLayers);
  }
}

// With the lowest trained layer's input retained, the layers below are not computed again.
TEST(FrozenLayers, TheInputOfTheLowestTrainedLayerSavesTheLayersBelow) {
  const SequenceLayout layout{kChunks * kChunk, kChunk, kPage, {0}};
  ScheduleOptions options{.windows = {0, 0, 0}, .first_trained_layer = 2};
  const auto recomputed_below = [&] {
    std::int64_t count = 0;
    for (const Episode& episode : make_step_schedule(layout, options).episodes)
      for (const Task& task : episode.tasks)
        count += task.kind == TaskKind::kLayerForward && !task.append && task.layer < 2 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(recomputed_below(), 2 * (kChunks - 1));
  options.across_episodes.resize(kChunks * kLayers);
  for (std::size_t c = 0; c < kChunks; ++c)
    options.across_episodes[c * kLayers + 2] = {Retained::kInput};
  EXPECT_EQ(recomputed_below(), 0);
}

}  // namespace
}  // namespace longstride
