// longstride demo, cut to two steps: the files it names exist, and the commands it suggests work.
#include <cstdlib>
#include <sstream>

#include "cli/recall_goal.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Demo, LeavesAModelAndARunToGoOnWith) {
  const RunDirectory run;
  const ProgramResult result =
      run.run({"demo", "--steps", "2", "--skip-contexts", "--out", "demo"});
  ASSERT_TRUE(ended(result, 0));
  EXPECT_TRUE(says(result.out, {"Hugging Face directory:  demo/run/step-2\n",
                                "longstride inspect demo/run/step-2\n",
                                "longstride train demo/demo.toml --resume --training.steps=22\n"}));
  EXPECT_EQ(run.metrics("demo/run/metrics.jsonl").size(), 2u);

  const ProgramResult inspected = run.run({"inspect", "demo/run/step-2", "--json"});
  ASSERT_TRUE(ended(inspected, 0));
  EXPECT_EQ(Json::parse(inspected.out)["step"], 2);
  EXPECT_TRUE(ended(run.run({"train", "demo/demo.toml", "--resume", "--training.steps=3"}), 0,
                    {"resuming after step 2", "saved demo/run/step-3"}));
}

// The commands are run as printed, from the demo's directory.
TEST(Demo, WhatItSuggestsWorks) {
  const RunDirectory run;
  const ProgramResult result =
      run.run({"demo", "--steps", "1", "--skip-contexts", "--out", "the demo"});
  ASSERT_TRUE(ended(result, 0));
  const std::string heading = "Try next:\n", more = "--training.steps=21";
  const auto at = result.out.find(heading);
  ASSERT_NE(at, std::string::npos) << result.text();
  std::vector<std::string> commands = lines_of(result.out.substr(at + heading.size()));
  ASSERT_EQ(commands.size(), 3u) << result.text();
  const auto steps = commands[1].find(more);
  ASSERT_NE(steps, std::string::npos) << commands[1];
  commands[1].replace(steps, more.size(), "--training.steps=2");  // twenty take long
  for (const std::string& command : commands) {
    const std::string line =
        fmt::format("cd '{}' && {} >/dev/null 2>&1", run.path().string(), command);
    EXPECT_EQ(std::system(line.c_str()), 0) << command;
  }
  EXPECT_TRUE(std::filesystem::exists(run.path("the demo/run/step-2")));
}

TEST(Demo, OffATerminalEveryLineIsAStepOrAPhase) {
  const RunDirectory run;
  const ProgramResult result =
      run.run({"demo", "--steps", "2", "--skip-contexts", "--out", "demo"});
  ASSERT_TRUE(ended(result, 0));
  const std::vector<std::string> lines = lines_of(result.err);
  EXPECT_EQ(lines.size(), 4u) << result.err;  // two phases, two steps
  for (const std::string& line : lines)
    EXPECT_TRUE(line.starts_with("  step ") || line.starts_with("  documents of ")) << line;
}

// Regression: they did not fit into the shortest documents, which became longer than the context.
TEST(Demo, ManyFactsMakeTheFirstDocumentsLonger) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.run({"demo", "--steps", "1", "--keys", "512", "--values", "2",
                             "--skip-contexts", "--out", "demo"}),
                    0, {"documents of 2048 tokens"}));
  EXPECT_EQ(std::filesystem::file_size(run.path("demo/data/tokens.u32")), 4096u * 4);
}

TEST(Demo, StopsAfterSeveralGoodStepsInARow) {
  cli::RecallGoal goal;
  for (std::size_t i = 0; i + 1 < cli::RecallGoal::kSteps; ++i) goal.add_step(512, 512);
  EXPECT_FALSE(goal.reached());  // too few
  goal.add_step(400, 512);
  EXPECT_FALSE(goal.reached());  // one was bad
  for (std::size_t i = 0; i + 1 < cli::RecallGoal::kSteps; ++i) goal.add_step(511, 512);
  EXPECT_FALSE(goal.reached());  // and still counts
  goal.add_step(511, 512);
  EXPECT_TRUE(goal.reached());
}

TEST(Demo, DoesNotWriteOverAnEarlierOne) {
  const RunDirectory run;
  run.files().write_text("demo/run/mine", "x");
  EXPECT_TRUE(refused(run.run({"demo", "--steps", "1", "--out", "demo"}),
                      {"demo/run exists already", "--out"}));
  EXPECT_EQ(run.names("demo"), (std::set<std::string>{"run"}));
}

}  // namespace
}  // namespace longstride
