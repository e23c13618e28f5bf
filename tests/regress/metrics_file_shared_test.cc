// Two runs with one metrics.file wrote into each other's lines; and a file of another's that had no
// newline was emptied.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

TEST(SharedMetricsFile, ASecondRunIsRefused) {
  const RunDirectory run;
  RunOptions options;
  options.directory = run.path();
  Program first(RunDirectory::train_arguments(
                    {"--metrics.file=m", "--training.steps=1000000", "--checkpoint.every=0"}),
                options);
  const auto begun = [&] {
    return std::filesystem::exists(run.path("m")) && std::filesystem::file_size(run.path("m")) > 0;
  };
  while (first.running() && !begun()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_TRUE(first.running());
  EXPECT_TRUE(refused(run.train({"--metrics.file=m", "--checkpoint.directory=other"}),
                      {"another process is writing metrics file", "set metrics.file"}));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().status, 128 + SIGTERM);
  const std::vector<Json> lines = run.metrics("m");
  ASSERT_FALSE(lines.empty());
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  // A lock ends with its process.
  EXPECT_TRUE(ended(run.train({"--metrics.file=m", "--checkpoint.directory=other"}), 0));
}

TEST(SharedMetricsFile, AForeignFileIsLeftAlone) {
  const RunDirectory run;
  for (const std::string text : {"notes without an end", "{\"step\": 1, \"mine\": 2}\n"}) {
    run.files().write_text("m", text);
    EXPECT_TRUE(refused(run.train({"--metrics.file=m"}), {"m:1: not a record of a step"}));
    EXPECT_EQ(run.read("m"), text);
  }
}

}  // namespace
}  // namespace longstride
