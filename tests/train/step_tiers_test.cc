// Invariant 2: wherever pages are kept, the bits are the same.
#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"
#include "tests/pages/watched_mover.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

struct Outcome {
  std::vector<float> losses;
  std::unique_ptr<ParameterSet> gradients;
  MovedBytes moved;
  StepMemory memory;
};

constexpr std::int64_t kChunk = 32, kPage = 16;

// Cases alternate.
NumericsChoice choice_of(std::uint64_t seed) {
  return {.kv_gradient_dtype = seed % 4 < 2 ? "f32" : "bf16"};
}

// The same with sparse layers, of which every second may be another kind.
NumericsChoice sparse_choice_of(std::uint64_t seed, const ModelConfig& config) {
  NumericsChoice choice = choice_of(seed);
  for (std::int64_t l = 0; l < config.layers; ++l)
    choice.sparse.budgets.push_back(l % 2 == 1 && seed % 2 == 1 ? SparseLayers::kNone : 4 + l);
  choice.sparse.selection = {.sinks = 1,
                             .recent = 1,
                             .union_pages = 9,
                             .summary_tokens = seed % 3 == 0 ? kPage : 4,
                             .summary = seed % 3 == 1 ? Summary::kOutliers : Summary::kMeans};
  return choice;
}

Outcome run(Device& device, const RandomCase& c, const ParameterSet& weights, std::int64_t keep,
            const NumericsChoice& choice, const PageBudget& pages,
            const MakeMover& make_mover = nullptr) {
  Outcome outcome;
  outcome.gradients = std::make_unique<ParameterSet>(device, c.config, DType::kF32, "gradients");
  StepRunner runner = planned_runner(c.config, weights, *outcome.gradients,
                                     choose_numerics(device, c.config, kChunk, kPage, choice),
                                     {.max_tokens = static_cast<std::int64_t>(c.tokens.size()),
                                      .keep_chunks = keep,
                                      .pages = pages,
                                      .packed = c.document_starts.size() > 1},
                                     make_mover);
  runner.record_losses();
  // Twice: the first run must leave no state behind.
  for (int i = 0; i < 2; ++i) {
    outcome.gradients->zero();
    runner.run({c.tokens, c.targets, c.document_starts}, 1.0);
  }
  outcome.losses.assign(runner.losses().begin(), runner.losses().end());
  outcome.moved = runner.store().moved();
  outcome.memory = runner.memory();
  EXPECT_EQ(runner.store().kv_pool().in_use(), 0);
  return outcome;
}

// Host memory of which some is left to K/V, or none. Sparse layers have no gradients on disk.
std::int64_t host_bytes(const NumericsChoice& choice, const Outcome& resident,
                        std::int64_t for_kv) {
  return for_kv + (choice.sparse.any() ? 2 * resident.memory.kv_gradient_pages : 0);
}

std::int64_t least_bytes(Device& device, const RandomCase& c, const SequenceLayout& layout,
                         std::int64_t keep, const NumericsChoice& choice) {
  const NumericsRecord numerics =
      choose_numerics(device, c.config, layout.chunk_tokens, layout.page_tokens, choice);
  return StepPlanner(device, c.config, parameter_specs(c.config, DType::kF32), numerics,
                     {.max_tokens = layout.tokens,
                      .keep_chunks = keep,
                      .packed = c.document_starts.size() > 1})
      .least_page_bytes();
}

// Contexts cut into several segments, with copies that are late, split and out of order.
TEST(StepTiers, LateCopiesGiveTheSameBits) {
  const auto device = make_cpu_device();
  std::int64_t copies = 0;
  const TempDirectory directory;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Random random(seed, 11);
    RandomCase c;
    c.config = random_config(random);
    for (std::int64_t& window : c.config.windows) window = window > 0 && seed == 2 ? window : 0;
    fill_sequence(c, random, 1500 + static_cast<std::int64_t>(random.below(300)),
                  seed % 2 == 0 ? 1 : 3, 0);
    const auto weights = random_weights(*device, c.config, seed);
    const NumericsChoice choice = seed < 3 ? choice_of(seed) : sparse_choice_of(seed, c.config);
    const Outcome resident = run(*device, c, *weights, 1, choice, {});
    const SequenceLayout layout{static_cast<std::int64_t>(c.tokens.size()), kChunk, kPage,
                                c.document_starts};
    const std::int64_t least =
        least_bytes(*device, c, {layout.tokens, kChunk, kPage, {0}}, 1, choice);
    if (c.config.layers > 1) {
      EXPECT_LT(least, resident.memory.kv_pages + resident.memory.kv_gradient_pages);
    }
    for (const PageBudget& pages :
         {PageBudget{least, PageBudget::kAll}, PageBudget{2 * least, PageBudget::kAll},
          PageBudget{least, host_bytes(choice, resident, resident.memory.kv_pages / 4),
                     PageBudget::kAll, directory.path()}}) {
      MoverWatch watch{
          .seed = seed,
          .granule = 2 * kPage * c.config.kv_heads * c.config.head_size * size_of(DType::kBF16)};
      const Outcome tiered = run(*device, c, *weights, 1, choice, pages,
                                 [&](Device&) { return std::make_unique<WatchedMover>(watch); });
      EXPECT_EQ(tiered.losses, resident.losses);
      EXPECT_TRUE(same_bits(*tiered.gradients, *resident.gradients)) << "seed " << seed;
      EXPECT_EQ(watch.races, 0);
      copies += watch.copies;
    }
  }
  EXPECT_GT(copies, 1000);
}

TEST(StepTiers, EveryTierGivesTheSameBits) {
  const auto device = make_cpu_device();
  const TempDirectory directory;
  for (std::uint64_t seed = 0; seed < 11; ++seed) {
    Random random(seed, 9);
    RandomCase c;
    c.config = random_config(random);
    fill_sequence(c, random, 300 + static_cast<std::int64_t>(random.below(60)),
                  seed % 2 == 0 ? 1 : 3, 0);
    const auto weights = random_weights(*device, c.config, seed);
    const SequenceLayout layout{static_cast<std::int64_t>(c.tokens.size()), kChunk, kPage, {0}};
    for (const std::int64_t keep : {1, 3}) {
      const NumericsChoice choice = seed < 8 ? choice_of(seed) : sparse_choice_of(seed, c.config);
      const Outcome resident = run(*device, c, *weights, keep, choice, {});
      EXPECT_EQ(resident.moved.out + resident.moved.in, 0);
      const std::int64_t least = least_bytes(*device, c, layout, keep, choice);
      const std::int64_t all = resident.memory.kv_pages + resident.memory.kv_gradient_pages;
      for (const std::int64_t budget : {least, (least + all) / 2, std::max(least, all - 1)}) {
        constexpr std::int64_t kAll = PageBudget::kAll;
        for (const PageBudget& pages :
             {PageBudget{budget, kAll},
              PageBudget{budget, host_bytes(choice, resident, 0), kAll, directory.path()},
              PageBudget{budget, host_bytes(choice, resident, all / 3), kAll, directory.path()}}) {
          const Outcome tiered = run(*device, c, *weights, keep, choice, pages);
          EXPECT_EQ(tiered.losses, resident.losses);
          EXPECT_TRUE(same_bits(*tiered.gradients, *resident.gradients))
              << "seed " << seed << " keep " << keep << " budget " << budget << " of " << all;
          EXPECT_LE(tiered.memory.kv_pages + tiered.memory.kv_gradient_pages, budget);
          if (budget == least && c.config.layers > 1) {
            EXPECT_GT(tiered.moved.in, 0);
          }
          if (pages.host == 0) {
            EXPECT_EQ(tiered.moved.to_disk, tiered.moved.out);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace longstride
