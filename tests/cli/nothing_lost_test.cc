// A failure in the middle of a run, or between two runs, never loses earlier saves.
#include <sys/stat.h>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

TEST(NothingLost, ASecondRunInTheSameDirectoryIsRefused) {
  const RunDirectory run;
  std::filesystem::create_directory(run.path("out"));
  {
    const DirectoryLock other(run.path("out"));
    EXPECT_TRUE(refused(run.train({"--resume"}), {"another process is at work in", "out"}));
    EXPECT_TRUE(run.nothing_written());
  }
  EXPECT_TRUE(ended(run.train({"--training.steps=1"}), 0));
}

TEST(NothingLost, WeightsThatAreNotFiniteAreNotSaved) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=1"}), 0));
  EXPECT_TRUE(refused(run.train({"--resume", "--training.steps=2", "--checkpoint.keep=1",
                                 "--optimizer.learning_rate=1e39"}),
                      {"the weights are broken", "not saved"}));
  EXPECT_EQ(run.names("out"), (std::set<std::string>{"metrics.jsonl", "step-1"}));
  EXPECT_TRUE(ended(run.train({"--resume", "--training.steps=2"}), 0));
}

TEST(NothingLost, AWindowCannotChangeWithinARun) {
  const RunDirectory run;
  const std::vector<std::string> begin = {"--model.preset=tiny-mistral", "--model.window=32"};
  ASSERT_TRUE(ended(run.train({begin[0], begin[1], "--training.steps=1"}), 0));
  EXPECT_TRUE(
      refused(run.train({begin[0], "--model.window=16", "--resume"}), {"model.window", "32"}));
}

TEST(NothingLost, GradientsDoNotReplaceTheModel) {
  const RunDirectory run;
  run.write_model("model", changed_preset("tiny-llama"));
  const std::string before = run.read("model/model.safetensors");
  EXPECT_TRUE(refused(run.run({"gradients", "--model", "model", "--tokens", "tokens.bin", "--out",
                               "model/model.safetensors", "--device", "cpu"}),
                      {"model/model.safetensors", "a file of the model"}));
  EXPECT_TRUE(run.read("model/model.safetensors") == before);
}

TEST(NothingLost, WhatIsNoFileIsNotReplacedByOne) {
  const RunDirectory run;
  ASSERT_EQ(::mkfifo(run.path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(
      refused(run.run({"bench", "step", "--preset", "tiny-llama", "--context", "64", "--chunk",
                       "64", "--page", "16", "--device", "cpu", "--json", "pipe"}),
              {"pipe", "not a regular file"}));
  EXPECT_TRUE(std::filesystem::is_fifo(run.path("pipe")));
}

TEST(NothingLost, ABudgetIsNotMoreThanThereIs) {
  const RunDirectory run;
  const ProgramResult result = run.train({"--memory.gpu=1000TiB", "--dry-run"});
  EXPECT_TRUE(ended(result, 0));
  EXPECT_EQ(result.err.find("1000.00 TiB"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace longstride
