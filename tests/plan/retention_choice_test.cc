#include "plan/retention_choice.h"

#include <gtest/gtest.h>

#include "model/presets.h"
#include "plan/step_plan.h"

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

}  // namespace
}  // namespace longstride
