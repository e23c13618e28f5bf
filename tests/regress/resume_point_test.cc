// Which checkpoint a run goes on from: broken and empty ones are passed over, and one can be named.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

TEST(ResumePoint, BrokenAndEmptyOnesArePassedOver) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train(), 0));
  fs::create_directory(run.path("out/step-9"));
  const auto whole = run.contents("out/step-6");
  flip_byte(run.path("out/step-6/model.safetensors"));
  EXPECT_TRUE(ended(run.train({"--resume"}), 0,
                    {"out/step-6 is damaged", "it is passed over", "resuming after step 3"}));
  EXPECT_TRUE(same_files(run.contents("out/step-6"), whole));
}

TEST(ResumePoint, AnEmptyOneDoesNotBlockANewRun) {
  const RunDirectory run;
  fs::create_directories(run.path("out/step-0"));
  EXPECT_TRUE(ended(run.train({"--training.steps=1"}), 0));
}

// What a resumed run passed over must not push out what it saves.
TEST(ResumePoint, ABrokenLaterOneDoesNotEvictGoodOnes) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train(), 0));
  flip_byte(run.path("out/step-6/model.safetensors"));
  EXPECT_TRUE(ended(
      run.train({"--resume", "--training.steps=5", "--checkpoint.keep=1", "--checkpoint.every=1"}),
      0, {"saved out/step-5"}));
  EXPECT_TRUE(run.names("out").contains("step-5"));
  EXPECT_TRUE(ended(run.run({"inspect", "out/step-5"}), 0));
}

TEST(ResumePoint, CanBeNamed) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train(), 0));
  const auto whole = run.contents("out/step-6");
  ASSERT_TRUE(ended(run.train({"--resume=out/step-3"}), 0,
                    {"out/step-6 is later than out/step-3 and is kept as step-6.superseded",
                     "resuming after step 3"}));
  EXPECT_TRUE(same_files(run.contents("out/step-6"), whole));
  EXPECT_TRUE(same_files(run.contents("out/step-6.superseded"), whole));
  EXPECT_TRUE(refused(run.train({"--resume=out"}), {"a directory of checkpoints", "out/step-6"}));
  EXPECT_TRUE(refused(run.train({"--resume=nowhere"}), {"nowhere", "no such directory"}));
  EXPECT_TRUE(ended(run.train({"--resume=out/step-3", "--checkpoint.directory=other"}), 0,
                    {"resuming after step 3", "saved other/step-6"}));
}

TEST(ResumePoint, OfAFinishedRunSaysWhatToDo) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=2", "--checkpoint.every=0"}), 0));
  EXPECT_TRUE(ended(run.train({"--resume", "--training.steps=1"}), 0,
                    {"2 of 1 steps are done already", "set training.steps higher than 2"}));
}

TEST(TrainWords, MayComeInAnyOrder) {
  const RunDirectory run;
  EXPECT_TRUE(ended(run.run({"train", "--training.steps", "1", "--dry-run", "run.toml"}), 0));
  EXPECT_TRUE(
      ended(run.run({"train", "--resume", "--training.steps=1", "run.toml", "--dry-run"}), 0));
  EXPECT_TRUE(refused(run.run({"train", "--dry-run"}), {"no configuration file"}));
  EXPECT_TRUE(refused(run.run({"train", "run.toml", "more.toml"}), {"more.toml"}));
}

}  // namespace
}  // namespace longstride
