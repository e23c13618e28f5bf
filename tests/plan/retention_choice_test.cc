#include "plan/retention_choice.h"

#include <gtest/gtest.h>

#include <chrono>

#include "plan/step_plan.h"
#include "tests/plan/retention_cases.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 4096, kContext = 32 * kChunk;

NumericsRecord record() {
  NumericsRecord r;
  r.chunk_tokens = kChunk;
  r.page_tokens = 128;
  r.compute = DType::kBF16;
  return r;
}

RetentionChoice choose(std::int64_t bytes, std::int64_t keep_chunks = 1) {
  const SequenceLayout layout{kContext, kChunk, 128, {0}};
  return choose_retention(find_preset("qwen2.5-7b"), record(), layout, keep_chunks, {bytes}, {});
}

TEST(RetentionChoice, TakesWhatItMayAndSavesMoreWithMore) {
  double saved = 0;
  for (const std::int64_t gib : {0, 1, 3, 20, 60, 500}) {
    const std::int64_t bytes = gib << 30;
    const RetentionChoice choice = choose(bytes);
    const RetainedLayout layout(find_preset("qwen2.5-7b"), DType::kBF16, kChunk,
                                choice.across_episodes);
    EXPECT_EQ(layout.bytes(), choice.bytes);
    EXPECT_LE(choice.bytes, bytes);
    if (gib < 100) {
      EXPECT_GT(choice.bytes, bytes - (160 << 20)) << "less than a tensor is left";
    }
    EXPECT_TRUE(choice.saved_flops > saved || gib == 0) << gib;
    saved = choice.saved_flops;
  }
}

// The input of the lowest trained layer saves all layers below, which need nothing else.
TEST(RetentionChoice, TheLowestTrainedLayersInputComesFirst) {
  const ModelConfig config = find_preset("qwen2.5-7b");
  const SequenceLayout layout{kContext, kChunk, 128, {0}};
  for (const std::int64_t first : {std::int64_t{14}, config.layers}) {
    const RetentionChoice choice = choose_retention(
        config, record(), layout, 1, {std::int64_t{2} << 30, std::int64_t{1} << 30}, {}, first);
    const std::int64_t lowest = std::min(first, config.layers - 1);
    for (std::size_t i = 0; i < choice.across_episodes.size(); ++i) {
      const std::int64_t layer = static_cast<std::int64_t>(i) % config.layers;
      const Retention here = choice.across_episodes[i] | choice.offloaded[i];
      if (layer == lowest) {
        EXPECT_TRUE(here.has(Retained::kInput)) << i;
      }
      if (layer < lowest) {
        EXPECT_TRUE(here.empty()) << i;
      }
    }
  }
}

// The attention of late chunks takes longest to recompute, then the products whose results are
// narrow.
TEST(RetentionChoice, TakesTheBestFirst) {
  const ModelConfig config = find_preset("qwen2.5-7b");
  const auto at = [&](const RetentionChoice& choice, std::int64_t chunk, std::int64_t layer) {
    return choice.across_episodes[static_cast<std::size_t>(chunk * config.layers + layer)];
  };
  const RetentionChoice some = choose(std::int64_t{10} << 30);
  EXPECT_EQ(at(some, 30, 5), Retention{Retained::kAttention});
  EXPECT_EQ(at(some, 0, 5), Retention());
  const RetentionChoice more = choose(std::int64_t{49} << 30);
  EXPECT_EQ(at(more, 30, 5), (Retention{Retained::kAttention, Retained::kInput}));
  EXPECT_EQ(at(more, 30, 0), Retention{Retained::kAttention}) << "its input is looked up";
  EXPECT_EQ(at(choose(std::int64_t{900} << 30), 30, 5), Retention::all());
}

TEST(RetentionChoice, KeptChunksNeedNothing) {
  const ModelConfig config = find_preset("qwen2.5-7b");
  EXPECT_EQ(std::ssize(choose(1 << 30, 4).across_episodes), 28 * config.layers);
  EXPECT_EQ(choose(1 << 30, 100).bytes, 0);
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(RetentionChoice, OfFewPlacesIsTheBest) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const RetentionCase c = i % 2 == 0 ? random_case(random, 1, 2) : random_case(random, 2, 1);
    const RetentionChoice choice = c.choose();
    expect_sound(c, choice);
    const std::vector<CaseTensor> tensors = tensors_of(c);
    std::vector<std::int64_t> hidden = hidden_of(tensors, c.rates.copies);
    const double best = best_seconds(tensors, hidden, c.room);
    EXPECT_NEAR(choice.saved_seconds, best, 1e-8 * best);
    EXPECT_LE(choice.most_seconds, best * (1 + 1e-6));
  }
}

TEST(RetentionChoice, IsNeverWorseThanGreedy) {
  std::mt19937 random(5);
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE(i);
    const RetentionCase c = random_case(random, 1 + i % 9, 1 + i / 5);
    const RetentionChoice choice = c.choose();
    expect_sound(c, choice);
    const std::vector<CaseTensor> tensors = tensors_of(c);
    const double greedy = greedy_seconds(tensors, hidden_of(tensors, c.rates.copies), c.room);
    EXPECT_GE(choice.saved_seconds, greedy * (1 - 1e-9));
  }
}

// Near the bound, never below greedy, and no less with more room.
TEST(RetentionChoice, OfRealShapesIsNearTheBound) {
  double largest_gain = 0;
  for (const std::int64_t context : {64, 128, 256, 1024})
    for (const std::int64_t device : {0, 5, 20, 40, 60, 100}) {
      double less_room = 0;
      for (const std::int64_t host : {0, 1, 5, 20, 40, 60, 100, 2000}) {
        SCOPED_TRACE(fmt::format("{}K, {} and {} GiB", context, device, host));
        const RetentionCase c = case_of_7b(context << 10, {device * kGiB, host * kGiB});
        const RetentionChoice choice = c.choose();
        expect_sound(c, choice);
        EXPECT_GE(choice.saved_seconds, 0.999 * choice.most_seconds);
        EXPECT_GE(choice.saved_seconds, less_room * (1 - 3e-4)) << "but for rounding";
        less_room = choice.saved_seconds;
        const std::vector<CaseTensor> tensors = tensors_of(c);
        const double greedy = greedy_seconds(tensors, hidden_of(tensors, c.rates.copies), c.room);
        EXPECT_GE(choice.saved_seconds, greedy * (1 - 1e-9));
        largest_gain = std::max(largest_gain, choice.saved_seconds - greedy);
      }
    }
  EXPECT_GT(largest_gain, 0.1);
}

TEST(RetentionChoice, OfFewPlacesSavesNoLessWithMoreRoom) {
  std::mt19937 random(9);
  for (int i = 0; i < 20; ++i) {
    RetentionCase c = random_case(random, 2, 2);
    const RetentionRoom most = c.room;
    double saved_before = 0;
    for (int part = 1; part <= 20; ++part) {
      c.room = {most.device * part / 20, most.host * part / 20};
      const double saved = c.choose().saved_seconds;
      EXPECT_GE(saved, saved_before * (1 - 1e-9));
      saved_before = saved;
    }
  }
}

TEST(RetentionChoice, IsTheSameEveryTime) {
  const RetentionCase c = case_of_7b(64 << 10, {60 * kGiB, 40 * kGiB});
  const RetentionChoice one = c.choose(), other = c.choose();
  EXPECT_EQ(one.across_episodes, other.across_episodes);
  EXPECT_EQ(one.offloaded, other.offloaded);
  EXPECT_EQ(one.saved_seconds, other.saved_seconds);
}

// About 10 ms on an idle machine; `longstride plan` makes up to twenty such choices.
TEST(RetentionChoice, OfAMillionTokensIsQuick) {
  RetentionCase c = case_of_7b(1 << 20, {60 * kGiB, 400 * kGiB});
  c.rates.copies = 10e9;  // greedy is far from the bound
  const auto begin = std::chrono::steady_clock::now();
  const RetentionChoice choice = c.choose();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(time.count(), 1.0);
  EXPECT_GE(choice.saved_seconds, 0.9999 * choice.most_seconds);
}

}  // namespace
}  // namespace longstride
