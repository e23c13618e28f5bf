// Which activations are retained, and where, changes no bit.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 32, kPage = 16;

// Families whose layers differ in what the backward pass needs.
enum class Kind : std::uint8_t { kPlain, kHeadNorms, kOutputNorms, kGemma3 };
constexpr Kind kKinds[] = {Kind::kPlain, Kind::kHeadNorms, Kind::kOutputNorms, Kind::kGemma3};
const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"plain", "head norms", "output norms", "gemma3"};
  return kNames[static_cast<std::size_t>(kind)];
}

RandomCase small_case(Kind kind) {
  RandomCase c;
  Random random(5, kind == Kind::kPlain ? 0 : 1);
  c.config = random_config(random);
  c.config.layers = 3;
  c.config.windows = {0, 20, 0};
  c.config.qk_norm = kind != Kind::kPlain;
  c.config.output_norms = c.config.wide_qk_norm = kind == Kind::kOutputNorms;
  c.config.input_norms = kind != Kind::kOutputNorms;
  if (kind == Kind::kGemma3) make_like_gemma3(c.config);
  fill_sequence(c, random, 4 * kChunk + 5, 2, 4);
  return c;
}

struct Outcome {
  std::vector<float> losses;
  std::vector<std::byte> gradients;
  StepMemory memory;
};

Outcome run(const RandomCase& c, StepOptions options) {
  const auto device = make_cpu_device();
  const auto weights = random_weights(*device, c.config, 3);
  ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
  options.max_tokens = std::ssize(c.tokens);
  StepRunner runner = planned_runner(c.config, *weights, gradients,
                                     choose_numerics(*device, c.config, kChunk, kPage), options);
  runner.record_losses();
  // First a shorter sequence, which keeps chunks that the longer one recomputes.
  const std::span tokens(c.tokens), targets(c.targets);
  const std::vector<std::int64_t> one = {0};
  runner.run({tokens.subspan(0, 2 * kChunk), targets.subspan(0, 2 * kChunk), one}, 1.0);
  gradients.zero();
  runner.run({c.tokens, c.targets, c.document_starts}, 1.0);
  Outcome out;
  out.losses.assign(runner.losses().begin(), runner.losses().end());
  out.gradients.assign(gradients.data(), gradients.data() + gradients.bytes());
  out.memory = runner.memory();
  return out;
}

std::vector<Retention> everywhere(const RandomCase& c, Retention tensors) {
  return std::vector<Retention>(static_cast<std::size_t>(5 * c.config.layers), tensors);
}

TEST(StepRetention, EverySetAcrossEpisodesGivesTheSameBits) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    const RandomCase c = small_case(kind);
    const Outcome want = run(c, {});
    EXPECT_EQ(want.memory.retained, 0);
    for (unsigned bits = 0; bits < 64; ++bits) {
      const Retention tensors = Retention::of_bits(bits);
      const Outcome got = run(c, {.across_episodes = everywhere(c, tensors)});
      EXPECT_EQ(got.losses, want.losses) << bits;
      EXPECT_TRUE(got.gradients == want.gradients) << bits;
      EXPECT_EQ(got.memory.retained > 0, bits > 0);
    }
  }
}

TEST(StepRetention, EverySetWithinAnEpisodeGivesTheSameBits) {
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    const RandomCase c = small_case(kind);
    const Outcome want = run(c, {});
    for (unsigned bits = 0; bits < 64; ++bits) {
      const Retention tensors = Retention::of_bits(bits);
      if (!tensors.has(Retained::kInput)) continue;
      const Outcome got = run(c, {.keep_chunks = 2, .within_episode = tensors});
      EXPECT_EQ(got.losses, want.losses) << bits;
      EXPECT_TRUE(got.gradients == want.gradients) << bits;
    }
  }
}

TEST(StepRetention, SetsMayDifferByChunkAndLayer) {
  Random random(9);
  for (const Kind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    const RandomCase c = small_case(kind);
    const Outcome want = run(c, {});
    for (int i = 0; i < 40; ++i) {
      StepOptions options;
      options.keep_chunks = 1 + static_cast<std::int64_t>(random.below(3));
      for (std::uint64_t n = random.below(16); n > 0; --n)
        options.across_episodes.push_back(
            Retention::of_bits(static_cast<unsigned>(random.below(64))));
      const Outcome got = run(c, options);
      EXPECT_EQ(got.losses, want.losses) << i;
      EXPECT_TRUE(got.gradients == want.gradients) << i;
    }
  }
}

TEST(StepRetention, PagesMayBeOffloadedBesides) {
  Random random(10);
  const RandomCase c = small_case(Kind::kGemma3);
  const Outcome want = run(c, {});
  const auto device = make_cpu_device();
  for (int i = 0; i < 20; ++i) {
    StepOptions options{.max_tokens = std::ssize(c.tokens), .packed = true};
    options.within_episode =
        Retention::of_bits(static_cast<unsigned>(random.below(64))) | Retention{Retained::kInput};
    for (int n = 0; n < 12; ++n)
      options.across_episodes.push_back(
          Retention::of_bits(static_cast<unsigned>(random.below(64))));
    const StepPlanner planner(*device, c.config, parameter_specs(c.config, DType::kF32),
                              choose_numerics(*device, c.config, kChunk, kPage), options);
    options.pages.device = planner.least_page_bytes();
    const Outcome got = run(c, options);
    EXPECT_GT(got.memory.host_pages, 0);
    EXPECT_EQ(got.losses, want.losses) << i;
    EXPECT_TRUE(got.gradients == want.gradients) << i;
  }
}

// Only inputs are retained: layers are recomputed one at a time, with the workspace of one layer.
TEST(StepRetention, RetainedInputsSaveWorkspace) {
  RandomCase c = small_case(Kind::kPlain);
  c.config.layers = 8;
  c.config.windows.assign(8, 0);
  const auto device = make_cpu_device();
  const std::vector<ParameterSpec> parameters = parameter_specs(c.config, DType::kF32);
  // Of a chunk that is recomputed.
  const auto workspace = [&](const std::vector<Retention>& across) {
    const StepPlan plan =
        plan_step(*device, c.config, parameters, choose_numerics(*device, c.config, kChunk, kPage),
                  {.max_tokens = 8 * kChunk, .across_episodes = across});
    const StepSchedule schedule = make_step_schedule(plan.layout(), plan.schedule);
    return plan.placed(schedule.episodes.back()).placement.bytes;
  };
  const std::vector<Retention> inputs(8 * 8, Retention{Retained::kInput});
  EXPECT_LT(workspace(inputs), workspace({}));
}

}  // namespace
}  // namespace longstride
