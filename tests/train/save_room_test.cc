// Counting of saves and refusal, on any disk; tests/cli/disk_full_test.cc uses a full one.
#include "train/save_room.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/presets.h"
#include "tests/data/temp_directory.h"
#include "train/checkpoint.h"

namespace longstride {
namespace {

struct SaveCase {
  std::int64_t steps, every, keep;
  std::vector<std::int64_t> saved;
  std::int64_t more;
};

RunPlan plan_of(const SaveCase& c, const std::filesystem::path& directory) {
  RunPlan plan;
  plan.model = open_model_source({.preset = "tiny-llama", .dtype = "bf16"}, 256);
  plan.config.training.steps = c.steps;
  plan.config.checkpoint = {directory, c.every, c.keep};
  plan.needs.weights = ParameterSet::bytes_needed(plan.model.specs);
  for (const std::int64_t step : c.saved)
    std::filesystem::create_directories(directory / fmt::format("step-{}", step) / "state");
  plan_saves(plan);
  return plan;
}

TEST(SaveRoom, CountsTheSavesThatAreStillToCome) {
  for (const SaveCase& c : {SaveCase{100, 0, 0, {}, 1},         // at the end
                            SaveCase{100, 10, 0, {}, 10},       // all stay
                            SaveCase{95, 10, 0, {}, 10},        // and one at the end
                            SaveCase{100, 10, 2, {}, 3},        // two, and the newest
                            SaveCase{100, 60, 5, {}, 2},        // fewer than may stay
                            SaveCase{100, 10, 2, {80, 90}, 1},  // as many as may stay
                            SaveCase{100, 10, 0, {90}, 1},      // the others are elsewhere
                            SaveCase{100, 10, 0, {10, 13}, 9},  // one was made by a signal
                            SaveCase{100, 10, 0, {100}, 0},     // done
                            SaveCase{100, 10, 2, {100}, 0}}) {
    const TempDirectory temp;
    EXPECT_EQ(plan_of(c, temp.path() / "out").needs.saves.more, c.more)
        << c.steps << " steps, every " << c.every << ", keep " << c.keep;
  }
}

TEST(SaveRoom, RefusesARunThatCouldNotSave) {
  const TempDirectory temp;
  RunPlan plan = plan_of({6, 3, 0, {}, 2}, temp.path() / "not/there");
  // Weights in bf16, moments and masters in F32; in memory each of them begins at 256 bytes.
  const std::int64_t exact = 14 * parameter_count(plan.model.config);
  EXPECT_GE(plan.needs.saves.bytes, exact);
  EXPECT_LT(plan.needs.saves.bytes, exact + 4 * 256 * std::ssize(plan.model.specs));
  ASSERT_TRUE(plan.needs.saves.available.has_value());
  plan.needs.available = plan.needs.total();
  plan.needs.saves.available = plan.needs.saves.bytes;
  EXPECT_NO_THROW(check_fits(plan));
  plan.needs.saves.available = plan.needs.saves.bytes - 1;
  EXPECT_THROW(check_fits(plan), Error);
  plan.needs.saves.more = 0;
  EXPECT_NO_THROW(check_fits(plan));
}

// They are removed before the first save.
TEST(SaveRoom, CountsWhatKilledSavesLeftAsFree) {
  const TempDirectory temp;
  temp.write_text("out/.step-6.unfinished-1/state/x", std::string(1000, 'x'));
  temp.write_text("out/.step-6.unfinished-1/y", std::string(24, 'y'));
  temp.write_text("out/step-3/model.safetensors", "z");
  const SavedSteps saved = saved_steps(temp.path() / "out");
  EXPECT_EQ(saved.count, 1);
  EXPECT_EQ(saved.newest, 3);
  EXPECT_EQ(saved.unfinished_bytes, 1024);
}

}  // namespace
}  // namespace longstride
