// On the GPU too, activations that stay, or leave and come back, change no bit, however slow their
// copies are.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cuda/slow_mover.h"
#include "tests/data/temp_directory.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunks = 5;

struct Case : RandomCase {
  NumericsChoice choice;
};

Case make_case(std::int64_t tokens_of_chunk, bool qk_norm, bool sparse) {
  Case c;
  c.chunk = tokens_of_chunk;
  Random random(qk_norm ? 1 : 0, 15);
  c.config = random_config(random);
  c.config.layers = 3;
  c.config.windows = {0, 300, 0};
  c.config.head_size = 64;
  c.config.qk_norm = qk_norm;
  fill_sequence(c, random, (kChunks - 1) * c.chunk + 100, 1, 0);
  if (sparse) {
    c.choice.sparse.budgets = {4, SparseLayers::kNone, 4};
    c.choice.sparse.selection = {.union_pages = 8, .summary_tokens = 64};
  }
  return c;
}

struct Outcome {
  std::vector<float> losses;
  std::vector<std::byte> gradients;
  bool operator==(const Outcome&) const = default;
};

Outcome run(Device& gpu, const Case& c, const ParameterSet& weights, StepOptions options,
            const MakeMover& make_mover = nullptr) {
  ParameterSet gradients(gpu, c.config, DType::kF32, "gradients");
  options.max_tokens = std::ssize(c.tokens);
  StepRunner runner =
      planned_runner(c.config, weights, gradients,
                     choose_numerics(gpu, c.config, c.chunk, 128, c.choice), options, make_mover);
  runner.record_losses();
  const std::int64_t allocated = gpu.allocated_bytes();
  std::int64_t used = 0;
  for (int i = 0; i < 3; ++i) {
    gradients.zero();
    runner.run({c.tokens, c.targets, c.document_starts}, 1.0);
    // The first one loads kernels; after it the driver's free memory stays as it is. Shards share
    // it.
    if (i > 0 && std::getenv("GTEST_TOTAL_SHARDS") == nullptr) {
      EXPECT_EQ(gpu.used_bytes(), used);
    }
    used = gpu.used_bytes();
  }
  EXPECT_EQ(gpu.allocated_bytes(), allocated);
  Outcome out{{runner.losses().begin(), runner.losses().end()}, {}};
  out.gradients.resize(static_cast<std::size_t>(gradients.bytes()));
  gpu.copy_to_host(out.gradients.data(), gradients.data(), gradients.bytes());
  return out;
}

void expect_same_bits(std::int64_t chunk, bool qk_norm, bool sparse,
                      const std::vector<Retention>& sets) {
  const std::unique_ptr<Device> gpu = make_cuda_device();
  const TempDirectory directory;
  const MakeMover slow = [](Device& device) {
    return std::make_unique<SlowMover>(device.make_mover(), 7);
  };
  const Case c = make_case(chunk, qk_norm, sparse);
  ParameterSet weights(*gpu, c.config, DType::kBF16, "weights");
  initialize_random(weights, c.config, 3);
  const Outcome want = run(*gpu, c, weights, {});
  for (const Retention set : sets) {
    const std::vector<Retention> all(static_cast<std::size_t>(kChunks * c.config.layers), set);
    const auto same = [&](const StepOptions& options, const char* how,
                          const MakeMover& make_mover = nullptr) {
      EXPECT_TRUE(run(*gpu, c, weights, options, make_mover) == want)
          << how << " " << set.bits() << (qk_norm ? ", with norms" : "")
          << (sparse ? ", sparse" : "");
    };
    same({.across_episodes = all}, "stays");
    same({.offloaded = all}, "host");
    same({.offloaded = all, .activations = {0, -1, directory.path()}}, "disk");
    same({.offloaded = all}, "slow", slow);
    same({.within_episode = set | Retention{Retained::kInput}}, "within");
  }
}

const std::vector<Retention> kTwoSets = {Retention::all(),
                                         {Retained::kInput, Retained::kAttention}};

TEST(ActivationsOnCuda, EveryChoiceGivesTheSameBits) {
  expect_same_bits(128, false, false, kTwoSets);
  expect_same_bits(128, true, true, kTwoSets);
}

TEST(ActivationsOnCuda, LargeOnesToo) {
  std::vector<Retention> sets = kTwoSets;
  for (int k = 0; k < kRetainedKinds; ++k) sets.push_back({static_cast<Retained>(k)});
  for (const bool qk_norm : {false, true})
    for (const bool sparse : {false, true}) expect_same_bits(512, qk_norm, sparse, sets);
}

}  // namespace
}  // namespace longstride
