// `--training.steps=1`, to see whether a configuration works, was refused where the file warms up
// for longer. More threads than cores were used without a word.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

TEST(ShortTry, HasTheLongRunsFirstRates) {
  const RunDirectory run;
  const auto rates = [&](const std::string& steps, const std::string& out) {
    const ProgramResult result =
        run.train({"--schedule.warmup_steps=4", "--schedule.kind=cosine",
                   "--checkpoint.directory=" + out, "--training.steps=" + steps});
    EXPECT_EQ(result.status, 0) << result.text();
    std::vector<double> found;
    for (const Json& line : run.metrics(out + "/metrics.jsonl"))
      found.push_back(line["learning_rate"]);
    return std::pair(found, result.err);
  };
  const auto [whole, silent] = rates("5", "whole");
  const auto [begun, warned] = rates("2", "begun");
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun, std::vector<double>(whole.begin(), whole.begin() + 2));
  EXPECT_EQ(begun[0], 1e-3 / 4);
  EXPECT_TRUE(says(warned, {"warning: training.steps (2) ends before schedule.warmup_steps (4)",
                            "0.5 of its peak"}));
  EXPECT_EQ(silent.find("warmup"), std::string::npos);
}

TEST(ManyThreads, AreWarnedOf) {
  const RunDirectory run;
  const auto warning = [&](const std::string& threads) {
    return run.train({"--dry-run", "--device.threads=" + threads}).err;
  };
  EXPECT_TRUE(says(warning("300"), {"warning: device.threads is 300", "core", "slower"}));
  EXPECT_EQ(warning("1").find("warning"), std::string::npos);
}

}  // namespace
}  // namespace longstride
