// Where the output directory was moved away while a checkpoint was written, the rest of it was
// written into a new one, and half a checkpoint was taken for a whole one. A writer makes no
// directories but its own.
#include "base/error.h"
#include "base/files.h"
#include "tests/cli/run_directory.h"
#include "train/checkpoint.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

bool has_name_of_a_step(const fs::path& root) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root, none))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

// The directory goes when the last file of the model is there, and the state is still to come; all
// that is left under a checkpoint's name is whole.
TEST(OutputMovedInASave, HalfASaveIsNone) {
  const RunDirectory run;
  int caught = 0;
  for (int attempt = 0; attempt < 6; ++attempt) {
    fs::remove_all(run.path("out"));
    fs::remove_all(run.path("away"));
    RunOptions options;
    options.directory = run.path();
    Program program(RunDirectory::train_arguments({"--training.steps=1"}), options);
    const auto saving = [&] {
      std::error_code none;
      for (const auto& entry : fs::directory_iterator(run.path("out"), none))
        if (is_unfinished_directory(entry.path()) &&
            fs::exists(entry.path() / "generation_config.json", none))
          return true;
      return false;
    };
    while (program.running() && !saving()) {
    }
    std::error_code none;
    fs::rename(run.path("out"), run.path("away"), none);
    const ProgramResult result = program.wait();
    if (none || has_name_of_a_step(run.path("away"))) continue;  // it was quicker
    ++caught;
    if (has_name_of_a_step(run.path("out"))) {
      EXPECT_NO_THROW(read_checkpoint_state(run.path("out/step-1"))) << result.text();
    }
  }
  EXPECT_GT(caught, 0);
}

}  // namespace
}  // namespace longstride
