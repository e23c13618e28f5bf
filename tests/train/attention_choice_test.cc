#include "train/attention_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

constexpr std::int64_t kContext = 1 << 18;

ModelConfig model(std::vector<std::int64_t> windows) {
  ModelConfig config;
  config.layers = std::ssize(windows);
  config.windows = std::move(windows);
  return config;
}

constexpr std::int64_t kNone = SparseLayers::kNone;
using Numbers = std::vector<std::int64_t>;

TEST(AttentionChoice, TheModelsOwnIsTheDefault) {
  ModelConfig config = model({0, 512, 0});
  EXPECT_FALSE(apply_attention({}, attention_keys(), 128, kContext, config).any());
  EXPECT_EQ(config.windows, (Numbers{0, 512, 0}));
}

TEST(AttentionChoice, SparseReplacesLayersWithoutAWindow) {
  ModelConfig config = model({0, 512, 0});
  const SparseLayers sparse =
      apply_attention({.kind = "sparse", .budget = 7}, attention_keys(), 128, kContext, config);
  EXPECT_EQ(sparse.budgets, (Numbers{7, kNone, 7}));
  EXPECT_EQ(config.windows, (Numbers{0, 512, 0}));
  EXPECT_EQ(sparse.selection.summary_tokens, 32);
  EXPECT_EQ(sparse.selection.summary, Summary::kOutliers);
  EXPECT_EQ(sparse.selection.scoring, Scoring::kFocus);
}

TEST(AttentionChoice, PatternsReplaceTheModels) {
  ModelConfig config = model({0, 512, 0, 0, 0, 0});
  const SparseLayers sparse = apply_attention({.layers = {"sparse*2", "window(64)"}, .budget = 9},
                                              attention_keys(), 128, kContext, config);
  EXPECT_EQ(sparse.budgets, (Numbers{9, 9, kNone, 9, 9, kNone}));
  EXPECT_EQ(config.windows, (Numbers{0, 0, 64, 0, 0, 64}));
  config = model({0, 512, 0, 0});
  EXPECT_EQ(apply_attention({.layers = {"dense", "sparse(33)*2", "dense"}}, attention_keys(), 128,
                            kContext, config)
                .budgets,
            (Numbers{kNone, 33, 33, kNone}));
  EXPECT_EQ(config.windows, (Numbers{0, 0, 0, 0}));
  // No layer is sparse: the numbers of sparse ones do not matter.
  EXPECT_FALSE(
      apply_attention({.layers = {"dense"}, .budget = 0}, attention_keys(), 128, kContext, config)
          .any());
}

TEST(AttentionChoice, TheSummaryIsAtMostAPage) {
  ModelConfig config = model({0});
  EXPECT_EQ(apply_attention({.kind = "sparse", .summary = "means"}, attention_keys(), 48, kContext,
                            config)
                .selection.summary_tokens,
            48);
}

TEST(AttentionChoice, OutliersNeedRoomForThem) {
  ModelConfig config = model({0});
  const auto summary_tokens = [&](std::optional<std::int64_t> tokens) {
    return apply_attention({.kind = "sparse", .summary = "outliers", .summary_tokens = tokens},
                           attention_keys(), 128, kContext, config)
        .selection.summary_tokens;
  };
  EXPECT_EQ(summary_tokens({}), 32);
  EXPECT_EQ(apply_attention({.kind = "sparse"}, attention_keys(), 128, 2 * kContext, config)
                .selection.summary_tokens,
            64)
      << "in a long context";
  EXPECT_EQ(summary_tokens(64), 64);
  EXPECT_THROW(summary_tokens(128), Error);
  EXPECT_EQ(apply_attention({.kind = "sparse", .summary_tokens = 128}, attention_keys(), 128,
                            kContext, config)
                .selection.summary,
            Summary::kMeans)
      << "where nothing else is possible";
  EXPECT_THROW(apply_attention({.kind = "sparse", .summary = "medians"}, attention_keys(), 128,
                               kContext, config),
               Error);
}

TEST(AttentionChoice, BudgetZeroNeedsNoForcedPages) {
  ModelConfig config = model({0});
  EXPECT_TRUE(apply_attention({.kind = "sparse", .budget = 0, .sinks = 0, .recent = 0},
                              attention_keys(), 128, kContext, config)
                  .any());
  EXPECT_TRUE(says(error_of([&] {
                     apply_attention({.kind = "sparse", .budget = 0}, attention_keys(), 128,
                                     kContext, config);
                   }),
                   {"attention.budget is 0", "attention.sinks 1"}));
}

}  // namespace
}  // namespace longstride
