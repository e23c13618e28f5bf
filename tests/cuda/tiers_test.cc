// Invariant 2 on the GPU: wherever pages wait and however slow their copies are, the bits are the
// same.
#include <gtest/gtest.h>

#include "tests/cuda/slow_mover.h"
#include "tests/data/temp_directory.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

struct Outcome {
  std::vector<float> losses;
  std::vector<std::byte> gradients;
  MovedBytes moved;
  StepMemory memory;
};

Outcome run(Device& gpu, const RandomCase& c, const ParameterSet& weights,
            const NumericsRecord& numerics, const PageBudget& pages,
            const MakeMover& make_mover = nullptr) {
  ParameterSet gradients(gpu, c.config, DType::kF32, "gradients");
  const StepOptions options{.max_tokens = static_cast<std::int64_t>(c.tokens.size()),
                            .pages = pages,
                            .packed = c.document_starts.size() > 1};
  StepRunner runner = planned_runner(c.config, weights, gradients, numerics, options, make_mover);
  runner.record_losses();
  for (int i = 0; i < 2; ++i) {
    gradients.zero();
    runner.run({c.tokens, c.targets, c.document_starts}, 1.0);
  }
  Outcome out{{runner.losses().begin(), runner.losses().end()},
              {},
              runner.store().moved(),
              runner.memory()};
  out.gradients.resize(static_cast<std::size_t>(gradients.bytes()));
  gpu.copy_to_host(out.gradients.data(), gradients.data(), gradients.bytes());
  return out;
}

struct Form {
  std::uint64_t seed;
  const char *gradient_pages, *kv_pages = "auto";
};

// Seeds: 0, dense; 1, windows; 2, documents; 3, documents behind many tokens; 4, sparse; 5, sparse
// with documents.
void expect_same_in_every_tier(const Form& form, std::int64_t tokens, std::int64_t chunk) {
  const auto& [seed, gradient_pages, kv_pages] = form;
  SCOPED_TRACE(testing::Message() << "seed " << seed << " " << gradient_pages << " " << kv_pages);
  const std::unique_ptr<Device> gpu = make_cuda_device();
  const TempDirectory directory;
  Random random(seed, 5);
  RandomCase c;
  c.config = random_config(random);
  c.config.head_size = 64;
  for (std::int64_t& window : c.config.windows) window = seed == 1 ? 300 : 0;
  fill_sequence(c, random, tokens, seed == 2 || seed == 5 ? 3 : 1, 0);
  if (seed == 3) c.document_starts = {0, tokens * 7 / 8 - 500, tokens * 7 / 8 + 1};
  ParameterSet weights(*gpu, c.config, DType::kBF16, "weights");
  initialize_random(weights, c.config, seed);
  NumericsChoice choice{.kv_gradient_dtype = gradient_pages, .layer_kv_dtypes = {kv_pages}};
  if (seed >= 4) {
    choice.sparse.budgets.assign(static_cast<std::size_t>(c.config.layers), 5);
    choice.sparse.selection = {.union_pages = 9, .summary_tokens = seed == 4 ? 128 : 64};
  }
  const NumericsRecord numerics = choose_numerics(*gpu, c.config, chunk, 128, choice);
  const Outcome resident = run(*gpu, c, weights, numerics, {});
  EXPECT_EQ(resident.moved.in, 0);
  const std::int64_t least =
      StepPlanner(*gpu, c.config, weights.specs(), numerics,
                  {.max_tokens = std::ssize(c.tokens), .packed = c.document_starts.size() > 1})
          .least_page_bytes();
  constexpr std::int64_t kAll = PageBudget::kAll;
  const auto same = [&](const PageBudget& pages, const MakeMover& make_mover = nullptr) {
    const Outcome tiered = run(*gpu, c, weights, numerics, pages, make_mover);
    EXPECT_EQ(tiered.losses, resident.losses);
    EXPECT_EQ(tiered.gradients, resident.gradients);
    if (pages.device < resident.memory.kv_pages + resident.memory.kv_gradient_pages) {
      EXPECT_GT(tiered.moved.in, 0);
    }
    EXPECT_LE(tiered.memory.kv_pages + tiered.memory.kv_gradient_pages, pages.device);
  };
  same({least, kAll});
  same({3 * least, kAll});
  // Sparse layers have no gradients on disk.
  const std::int64_t gradients = seed >= 4 ? 2 * resident.memory.kv_gradient_pages : 0;
  same({least, gradients, kAll, directory.path()});
  same({2 * least, gradients + resident.memory.kv_pages / 3, kAll, directory.path()});
  for (const std::int64_t budget : {least, 2 * least})
    same({budget, kAll}, [seed = form.seed](Device& device) {
      return std::make_unique<SlowMover>(device.make_mover(), seed);
    });
}

TEST(TiersOnCuda, EveryTierGivesTheSameBits) {
  for (const Form& form : {Form{0, "bf16"}, Form{1, "f32"}, Form{2, "f32"}, Form{3, "int8", "int8"},
                           Form{4, "int8", "int8"}, Form{5, "fp8", "fp8"}})
    expect_same_in_every_tier(form, 900, 256);
}

// Dense ones longer than a segment.
TEST(TiersOnCuda, LargeOnesToo) {
  for (const Form& form :
       {Form{0, "f32"}, Form{1, "f32"}, Form{2, "f32"}, Form{3, "f32"}, Form{0, "bf16"},
        Form{1, "bf16"}, Form{3, "bf16"}, Form{4, "f32"}, Form{5, "bf16"}, Form{3, "int8", "int8"},
        Form{4, "int8", "int8"}, Form{4, "bf16", "int8"}, Form{5, "int8"}, Form{5, "fp8", "fp8"},
        Form{1, "fp8", "fp8"}}) {
    const bool is_long = form.seed == 0 || form.seed == 3;
    expect_same_in_every_tier(form, is_long ? 40'000 : 9'000, is_long ? 2'048 : 512);
  }
}

}  // namespace
}  // namespace longstride
