#include "train/learning_rate.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

ScheduleConfig schedule(const std::string& kind, std::int64_t warmup, double final_fraction) {
  return {.kind = kind, .warmup_steps = warmup, .final_fraction = final_fraction};
}

TEST(LearningRate, WarmUpIsLinearFromStepOne) {
  for (const std::string kind : {"cosine", "linear", "constant"}) {
    const ScheduleConfig s = schedule(kind, 4, 0.1);
    EXPECT_DOUBLE_EQ(learning_rate_at(s, 1e-3, 1, 100), 0.25e-3);
    EXPECT_DOUBLE_EQ(learning_rate_at(s, 1e-3, 3, 100), 0.75e-3);
    EXPECT_DOUBLE_EQ(learning_rate_at(s, 1e-3, 4, 100), 1e-3);
  }
}

TEST(LearningRate, EndsAtTheFinalFraction) {
  for (const std::int64_t warmup : {0, 1, 10}) {
    EXPECT_NEAR(learning_rate_at(schedule("cosine", warmup, 0.1), 2.0, 100, 100), 0.2, 1e-15);
    EXPECT_NEAR(learning_rate_at(schedule("linear", warmup, 0.1), 2.0, 100, 100), 0.2, 1e-15);
    EXPECT_EQ(learning_rate_at(schedule("constant", warmup, 0.1), 2.0, 100, 100), 2.0);
    EXPECT_EQ(learning_rate_at(schedule("linear", warmup, 0.0), 2.0, 100, 100), 0.0);
  }
}

TEST(LearningRate, WithoutWarmUpTheFirstStepHasThePeak) {
  for (const std::string kind : {"cosine", "linear", "constant"})
    EXPECT_EQ(learning_rate_at(schedule(kind, 0, 0.1), 2.0, 1, 100), 2.0);
}

TEST(LearningRate, HalfWay) {
  // Between the peak at step 10 and the end at 110.
  EXPECT_NEAR(learning_rate_at(schedule("linear", 10, 0.2), 1.0, 60, 110), 0.6, 1e-15);
  EXPECT_NEAR(learning_rate_at(schedule("cosine", 10, 0.2), 1.0, 60, 110), 0.6, 1e-15);
  EXPECT_NEAR(learning_rate_at(schedule("linear", 10, 0.2), 1.0, 35, 110), 0.8, 1e-15);
  EXPECT_NEAR(learning_rate_at(schedule("cosine", 10, 0.0), 1.0, 35, 110), 0.8535533905932737,
              1e-15);
}

TEST(LearningRate, NeverRisesAfterTheWarmUp) {
  for (const std::string kind : {"cosine", "linear"})
    for (std::int64_t step = 6; step <= 50; ++step)
      EXPECT_LT(learning_rate_at(schedule(kind, 5, 0.1), 1.0, step, 50),
                learning_rate_at(schedule(kind, 5, 0.1), 1.0, step - 1, 50));
}

TEST(LearningRate, ShortRuns) {
  EXPECT_EQ(learning_rate_at(schedule("cosine", 0, 0.1), 1.0, 1, 1), 1.0);
  EXPECT_EQ(learning_rate_at(schedule("cosine", 3, 0.1), 1.0, 3, 3), 1.0);
  EXPECT_NEAR(learning_rate_at(schedule("cosine", 0, 0.1), 1.0, 5, 3), 0.1, 1e-15)
      << "past the end";
}

}  // namespace
}  // namespace longstride
