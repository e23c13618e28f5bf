// Data that were cut short during a run ended it by SIGBUS, and what it had learned was lost.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

// Steps in the metrics file that are whole.
std::size_t steps_done(const RunDirectory& run) {
  if (!std::filesystem::exists(run.path("out/metrics.jsonl"))) return 0;
  const std::string text = run.read("out/metrics.jsonl");
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

// Trains until some steps are done, cuts the file, and gives back how it ended.
ProgramResult cut_during_run(const RunDirectory& run, const std::string& file,
                             const std::vector<std::string>& more) {
  RunOptions options;
  options.directory = run.path();
  std::vector<std::string> words = {"--training.steps=100000", "--checkpoint.every=0"};
  words.insert(words.end(), more.begin(), more.end());
  Program program(RunDirectory::train_arguments(words), options);
  while (program.running() && steps_done(run) < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::filesystem::resize_file(run.path(file), 100);
  return program.wait();
}

TEST(TruncatedData, TheStepsBeforeAreSavedAndTheRunGoesOnFromThem) {
  const RunDirectory run, whole;
  ASSERT_TRUE(refused(cut_during_run(run, "tokens.bin", {}),
                      {"tokens.bin has changed while it was in use", "leave the data alone"}));
  const std::size_t done = run.metrics().size();
  EXPECT_GE(done, 3u);
  const std::string saved = fmt::format("step-{}", done);
  EXPECT_EQ(run.names("out"), (std::set<std::string>{"metrics.jsonl", saved}));

  // With the data back, the run goes on as if nothing had been.
  run.write_tokens("tokens.bin", 16 * 256 + 1);
  const std::string steps = fmt::format("--training.steps={}", done + 2);
  ASSERT_TRUE(ended(run.train({"--resume", steps}), 0));
  ASSERT_TRUE(ended(whole.train({steps}), 0));
  const std::string last = fmt::format("out/step-{}/model.safetensors", done + 2);
  EXPECT_TRUE(run.read(last) == whole.read(last));
}

TEST(TruncatedData, AMask) {
  const RunDirectory run;
  run.files().write_text("mask.bin", std::string(16 * 256 + 1, '\1'));
  EXPECT_TRUE(refused(cut_during_run(run, "mask.bin", {"--data.loss_mask=mask.bin"}),
                      {"mask.bin has changed while it was in use", "saved out/step-"}));
}

TEST(TruncatedData, Text) {
  const RunDirectory run;
  run.files().write_text("words.txt", std::string(5000, 'x'));
  EXPECT_TRUE(
      refused(cut_during_run(run, "words.txt", {"--data.path=words.txt", "--data.format=text"}),
              {"words.txt has changed while it was in use", "saved out/step-"}));
}

}  // namespace
}  // namespace longstride
