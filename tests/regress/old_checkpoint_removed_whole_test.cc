// A run that was killed while it removed an old checkpoint left half of it under its name.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

TEST(OldCheckpointRemovedWhole, NothingOfItIsLeft) {
  const TempDirectory directory;
  directory.write_text("step-1/model.safetensors", "weights");
  directory.write_text("step-1/state/state.json", "state");
  EXPECT_TRUE(remove_directory_whole(directory.path() / "step-2"));  // there is none
  EXPECT_FALSE(remove_directory_whole(directory.path() / "step-1"));
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

// Whoever looks while a run removes its old checkpoints sees whole ones or none.
TEST(OldCheckpointRemovedWhole, HalfOfItHasNoName) {
  const RunDirectory run;
  RunOptions options;
  options.directory = run.path();
  Program program(RunDirectory::train_arguments(
                      {"--checkpoint.every=1", "--checkpoint.keep=1", "--training.steps=16"}),
                  options);
  std::string half;
  while (program.running()) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(run.path("out"), none)) {
      if (!entry.path().filename().string().starts_with("step-")) continue;
      // In this order: what lacks its weights and is still there has lost them alone.
      if (!fs::exists(entry.path() / "model.safetensors", none) && fs::exists(entry.path(), none))
        half = entry.path().filename().string();
    }
  }
  EXPECT_TRUE(ended(program.wait(), 0));
  EXPECT_EQ(half, "");
}

// A run that is killed after its last save, before it removed the older one, leaves that to the
// next.
TEST(OldCheckpointRemovedWhole, TheNextProcessRemovesWhatAKilledOneLeft) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--checkpoint.keep=0"}), 0));
  ASSERT_TRUE(run.names("out").contains("step-3"));
  EXPECT_TRUE(ended(run.train({"--resume", "--checkpoint.keep=1"}), 0, {"6 of 6 steps are done"}));
  EXPECT_FALSE(run.names("out").contains("step-3"));
  EXPECT_TRUE(run.names("out").contains("step-6"));
}

}  // namespace
}  // namespace longstride
