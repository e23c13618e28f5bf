// Activations that leave the device and come back change no bit, and every wait for their copies is
// needed.
#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"
#include "tests/offload/wait_sites.h"
#include "tests/pages/watched_mover.h"
#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 32, kPage = 16;

struct Case : RandomCase {
  NumericsChoice choice;
};

Case small_case(bool qk_norm, bool sparse = false) {
  Case c;
  Random random(5, qk_norm ? 1 : 0);
  c.config = random_config(random);
  c.config.layers = 3;
  c.config.windows = {0, 20, 0};
  c.config.qk_norm = qk_norm;
  fill_sequence(c, random, 4 * kChunk + 5, sparse ? 1 : 2, 4);
  if (sparse) {
    c.choice.sparse.budgets = {3, SparseLayers::kNone, 3};
    c.choice.sparse.selection = {.sinks = 1, .recent = 1, .union_pages = 5, .summary_tokens = 8};
  }
  return c;
}

struct Outcome {
  std::vector<float> losses;
  std::vector<std::byte> gradients;
  StepMemory memory;
  MovedBytes moved;
  bool operator==(const Outcome& other) const {
    return losses == other.losses && gradients == other.gradients;
  }
};

Outcome run(const Case& c, StepOptions options, MoverWatch* watch = nullptr,
            bool interrupted = false) {
  const auto device = make_cpu_device();
  const auto weights = random_weights(*device, c.config, 3);
  ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
  options.max_tokens = std::ssize(c.tokens);
  MakeMover make_mover;
  if (watch != nullptr)
    make_mover = [watch](Device&) { return std::make_unique<WatchedMover>(*watch); };
  StepRunner runner = planned_runner(c.config, *weights, gradients,
                                     choose_numerics(*device, c.config, kChunk, kPage, c.choice),
                                     options, make_mover);
  runner.record_losses();
  const std::span tokens(c.tokens), targets(c.targets);
  const std::vector<std::int64_t> one = {0};
  // First shorter sequences: they keep chunks that the longer one recomputes, and may go forward
  // alone where that one goes in pairs.
  for (const std::size_t n : {2 * kChunk, 3 * kChunk})
    runner.run({tokens.subspan(0, n), targets.subspan(0, n), one}, 1.0);
  if (interrupted) {
    int left = 30;
    EXPECT_THROW(
        runner.run({c.tokens, c.targets, c.document_starts}, 1.0, [&] { return --left == 0; }),
        Interrupted);
  }
  gradients.zero();
  Outcome out;
  out.moved = runner.run({c.tokens, c.targets, c.document_starts}, 1.0).moved;
  out.losses.assign(runner.losses().begin(), runner.losses().end());
  out.gradients.assign(gradients.data(), gradients.data() + gradients.bytes());
  out.memory = runner.memory();
  return out;
}

std::vector<Retention> everywhere(const Case& c, Retention tensors) {
  return std::vector<Retention>(static_cast<std::size_t>(5 * c.config.layers), tensors);
}

std::vector<Retention> any(const Case& c, Random& random) {
  std::vector<Retention> sets;
  for (std::uint64_t n = random.below(static_cast<std::uint64_t>(5 * c.config.layers) + 1); n > 0;
       --n)
    sets.push_back(Retention::of_bits(static_cast<unsigned>(random.below(64))));
  return sets;
}

TEST(StepOffloadedActivations, EverySetGivesTheSameBits) {
  const TempDirectory directory;
  for (const bool qk_norm : {false, true}) {
    const Case c = small_case(qk_norm);
    const Outcome want = run(c, {});
    for (unsigned bits = 1; bits < 64; ++bits) {
      const std::vector<Retention> sets = everywhere(c, Retention::of_bits(bits));
      const Outcome host = run(c, {.offloaded = sets});
      EXPECT_TRUE(host == want) << bits << (qk_norm ? ", with norms" : "");
      EXPECT_GT(host.memory.host_activations, 0) << bits;
      EXPECT_EQ(host.memory.disk_activations, 0) << bits;
      EXPECT_EQ(host.memory.retained, 0) << bits;
      EXPECT_GT(host.moved.out, 0) << bits;
      EXPECT_EQ(host.moved.out, host.moved.in) << bits;
      if (bits % 8 != 5) continue;
      const Outcome disk = run(c, {.offloaded = sets, .activations = {0, -1, directory.path()}});
      EXPECT_TRUE(disk == want) << bits << (qk_norm ? ", with norms" : "");
      EXPECT_GT(disk.memory.disk_activations, 0) << bits;
      EXPECT_EQ(disk.moved.to_disk, host.moved.out) << bits;
    }
  }
}

// Beside activations that stay, kept chunks, sparse layers and offloaded pages, with copies that
// are late, split and out of order.
TEST(StepOffloadedActivations, LateCopiesGiveTheSameBits) {
  Random random(9);
  const TempDirectory directory;
  std::int64_t copies = 0;
  for (const bool qk_norm : {false, true})
    for (const bool sparse : {false, true}) {
      const Case c = small_case(qk_norm, sparse);
      const Outcome want = run(c, {});
      for (int i = 0; i < 15; ++i) {
        StepOptions options{.max_tokens = std::ssize(c.tokens), .packed = true};
        options.keep_chunks = 1 + static_cast<std::int64_t>(random.below(3));
        options.across_episodes = any(c, random);
        options.offloaded = any(c, random);
        options.wavefront = i % 4 != 3;
        if (i % 3 == 1)
          options.activations = {static_cast<std::int64_t>(random.below(1 << 18)), -1,
                                 directory.path()};
        if (i % 2 == 1) {
          const auto device = make_cpu_device();
          options.pages.device =
              StepPlanner(*device, c.config, parameter_specs(c.config, DType::kF32),
                          choose_numerics(*device, c.config, kChunk, kPage, c.choice), options)
                  .least_page_bytes();
        }
        MoverWatch watch{.seed = static_cast<std::uint64_t>(i)};
        const Outcome got = run(c, options, &watch, i % 5 == 0);
        EXPECT_TRUE(got == want) << i << (qk_norm ? ", with norms" : "")
                                 << (sparse ? ", sparse" : "");
        EXPECT_EQ(watch.races, 0) << i;
        copies += watch.copies;
      }
    }
  EXPECT_GT(copies, 1000);
}

TEST(StepOffloadedActivations, NoWaitCanBeLeftOut) {
  const Case c = small_case(true);
  const TempDirectory directory;
  for (const WaitSite* site : wait_sites_of("activations"))
    for (const ActivationBudget& budget :
         {ActivationBudget{}, ActivationBudget{0, -1, directory.path()}}) {
      // Disks have threads: what they happen to wait for may hide a race, so try again.
      std::int64_t races = 0;
      for (std::uint64_t seed = 0; seed < 8 && races == 0; ++seed) {
        MoverWatch watch{.seed = seed, .left_out = site};
        try {
          run(c, {.offloaded = everywhere(c, Retention::all()), .activations = budget}, &watch);
        } catch (const Error&) {
          // Memory that was not there yet may hold anything.
        }
        races = watch.races;
      }
      EXPECT_GT(races, 0) << site->name();
    }
}

TEST(StepOffloadedActivations, ATooSmallBudgetIsRefused) {
  const Case c = small_case(false);
  try {
    run(c, {.offloaded = everywhere(c, {Retained::kGate}), .activations = {0, 1000}});
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("and 1000 B are allowed"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace longstride
