// A run that was stopped in any way and resumed gives the same bytes as an uninterrupted one.
#include <fmt/format.h>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

bool unfinished_save_in(const fs::path& directory, const std::string& step) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none))
    if (entry.path().filename().string().starts_with("." + step + ".unfinished-")) return true;
  return false;
}

// The model of these runs: its large vocabulary makes a save slow enough to be interrupted.
void write_large_vocabulary(const RunDirectory& run) {
  run.write_model("model", changed_preset("tiny-llama", {{"vocab_size", 16000}}));
}

std::vector<std::string> with_model(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--model.preset=", "--model.path=model"});
  return more;
}

void expect_same_result(const RunDirectory& a, const RunDirectory& b) {
  EXPECT_TRUE(same_files(a.contents("out/step-6"), b.contents("out/step-6")));
  EXPECT_EQ(without_timings(a.metrics()), without_timings(b.metrics()));
}

// Starts a run, sends the signal as soon as `now` holds, and waits for its end.
template <class F>
ProgramResult stop_when(const F& now, int signal, const RunDirectory& run,
                        const std::vector<std::string>& settings) {
  fs::remove_all(run.path("out"));
  RunOptions options;
  options.directory = run.path();
  Program program(RunDirectory::train_arguments(settings), options);
  while (program.running() && !now()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  program.send(signal);
  return program.wait();
}

constexpr int kAttempts = 20;

TEST(Resume, AfterAKillInTheMiddleOfASave) {
  const RunDirectory whole, killed;
  write_large_vocabulary(whole);
  write_large_vocabulary(killed);
  ASSERT_TRUE(ended(whole.train(with_model()), 0));
  const auto saving = [&] { return unfinished_save_in(killed.path("out"), "step-6"); };
  bool hit = false;
  for (int attempt = 0; attempt < kAttempts && !hit; ++attempt)
    hit = stop_when(saving, SIGKILL, killed, with_model()).status == 128 + SIGKILL && saving() &&
          !fs::exists(killed.path("out/step-6"));
  ASSERT_TRUE(hit) << "no attempt killed the program while it saved";
  EXPECT_TRUE(same_files(whole.contents("out/step-3"), killed.contents("out/step-3")));

  const ProgramResult result = killed.train(with_model({"--resume"}));
  ASSERT_TRUE(ended(result, 0, {"a save that was cut short", "resuming after step 3", "step 4/6"}));
  EXPECT_EQ(result.err.find("step 3/6"), std::string::npos);
  EXPECT_EQ(killed.names("out"), (std::set<std::string>{"metrics.jsonl", "step-3", "step-6"}));
  expect_same_result(whole, killed);
}

class ResumeAfterSignal : public ::testing::TestWithParam<int> {};

TEST_P(ResumeAfterSignal, GivesTheSameBytes) {
  const int signal = GetParam();
  const std::vector<std::string> settings = with_model({"--checkpoint.every=0"});
  const RunDirectory whole, stopped;
  write_large_vocabulary(whole);
  write_large_vocabulary(stopped);
  ASSERT_TRUE(ended(whole.train(settings), 0));
  const auto a_step_is_done = [&] {
    std::error_code none;
    const auto bytes = fs::file_size(stopped.path("out/metrics.jsonl"), none);
    return !none && bytes > 0;
  };
  ProgramResult result;
  for (int attempt = 0; attempt < kAttempts && result.status != 128 + signal; ++attempt)
    result = stop_when(a_step_is_done, signal, stopped, settings);
  ASSERT_TRUE(ended(result, 128 + signal,
                    {"saved out/step-", fmt::format("stopped by signal {}", signal), "--resume"}));
  std::set<std::string> saved = stopped.names("out");
  saved.erase("metrics.jsonl");
  ASSERT_EQ(saved.size(), 1u);
  const std::string step = saved.begin()->substr(5);
  ASSERT_TRUE(ended(stopped.train(with_model({"--checkpoint.every=0", "--resume"})), 0,
                    {"resuming after step " + step}));
  expect_same_result(whole, stopped);
}

INSTANTIATE_TEST_SUITE_P(, ResumeAfterSignal, ::testing::Values(SIGTERM, SIGINT));

TEST(Resume, BeforeTheFirstSaveStartsAtTheBeginning) {
  const RunDirectory whole, run;
  ASSERT_TRUE(ended(whole.train(), 0));
  ASSERT_TRUE(ended(run.train({"--resume"}), 0, {"step 1/6"}));
  expect_same_result(whole, run);
}

TEST(Resume, OfAFinishedRunHasNothingToDo) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train(), 0));
  const auto before = run.contents("out");
  const ProgramResult result = run.train({"--resume"});
  ASSERT_TRUE(ended(result, 0, {"6 of 6 steps are done already"}));
  EXPECT_EQ(result.err.find("step 6/6"), std::string::npos);
  EXPECT_TRUE(same_files(before, run.contents("out")));
}

TEST(Resume, TheStepsMayGrow) {
  const RunDirectory whole, grown;
  ASSERT_TRUE(ended(whole.train(), 0));
  ASSERT_TRUE(ended(grown.train({"--training.steps=3"}), 0, {"saved out/step-3"}));
  ASSERT_TRUE(ended(grown.train({"--resume"}), 0, {"resuming after step 3", "step 4/6"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), grown.contents("out/step-6")));
}

// auto takes the chunk of the checkpoint, whatever it would take for a new run.
TEST(Resume, AutoKeepsTheChunk) {
  const RunDirectory whole, resumed;
  ASSERT_TRUE(ended(whole.train(), 0, {"in chunks of 64,"}));
  ASSERT_TRUE(ended(resumed.train({"--training.steps=3"}), 0));
  ASSERT_TRUE(ended(resumed.train({"--training.chunk=auto", "--resume"}), 0,
                    {"resuming after step 3", "in chunks of 64,"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), resumed.contents("out/step-6")));
  const RunDirectory fresh;
  ASSERT_TRUE(
      ended(fresh.train({"--training.chunk=auto"}), 0, {"in chunks of 256,"}));  // all of it
}

// Stochastic rounding depends on the step's number, not on the steps of this process.
TEST(Resume, StochasticRoundingGoesOn) {
  const std::string bf16 = "--numerics.kv_gradient_dtype=bf16";
  const RunDirectory whole, stopped, f32;
  ASSERT_TRUE(ended(whole.train({bf16, "--training.batch=2"}), 0));
  ASSERT_TRUE(ended(stopped.train({bf16, "--training.batch=2", "--training.steps=3"}), 0));
  ASSERT_TRUE(ended(stopped.train({bf16, "--training.batch=2", "--resume"}), 0,
                    {"resuming after step 3", "step 4/6"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), stopped.contents("out/step-6")));
  ASSERT_TRUE(ended(f32.train({"--training.batch=2"}), 0));
  EXPECT_NE(whole.read("out/step-6/model.safetensors"), f32.read("out/step-6/model.safetensors"));
  EXPECT_TRUE(refused(stopped.train({"--training.batch=2", "--training.steps=9", "--resume"}),
                      {"numerics.kv_gradient_dtype is ", "f32", "bf16", "put the old value back"}));
}

TEST(Resume, WithAChangedSettingIsRefusedByName) {
  const RunDirectory run;
  run.write_tokens("other.bin", 3000);
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  const auto before = run.contents("out");
  for (const auto& [setting, value, old] :
       std::vector<std::array<std::string, 3>>{{"training.seed", "8", "7"},
                                               {"training.chunk", "128", "64"},
                                               {"training.page", "32", "16"},
                                               {"training.context", "512", "256"},
                                               {"data.path", "other.bin", "tokens.bin"},
                                               {"data.shuffle", "false", "true"},
                                               {"model.preset", "tiny-qwen2", "tiny-llama"}}) {
    EXPECT_TRUE(refused(run.train({"--resume", "--" + setting + "=" + value}),
                        {setting + " is ", value, old, "out/step-3", "put the old value back"}));
    EXPECT_TRUE(same_files(before, run.contents("out"))) << setting;
  }
}

TEST(Resume, SaysWhereTheDataHaveChanged) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  const std::string tokens = run.read("tokens.bin");
  EXPECT_EQ(run.train({"--resume", "--dry-run"}).err.find("other data"), std::string::npos);
  for (const std::string& other : {tokens.substr(0, tokens.size() / 8 * 4), tokens.substr(4)}) {
    run.files().write_text("tokens.bin", other);
    EXPECT_TRUE(ended(run.train({"--resume", "--dry-run"}), 0,
                      {"data.path", "tokens.bin", "other data than when out/step-3 was saved"}));
  }
  ASSERT_TRUE(ended(run.train({"--resume"}), 0, {"other data", "step 6/6"}));
}

TEST(Resume, DoesNotCareWhereTheDataLie) {
  const RunDirectory whole, moved;
  const std::string tokens = whole.read("tokens.bin"), mask(tokens.size() / 4, '\1');
  for (const RunDirectory* run : {&whole, &moved}) run->files().write_text("mask.bin", mask);
  ASSERT_TRUE(ended(whole.train({"--data.loss_mask=mask.bin"}), 0));
  ASSERT_TRUE(ended(moved.train({"--data.loss_mask=mask.bin", "--training.steps=3"}), 0));
  std::filesystem::create_directory(moved.path("elsewhere"));
  for (const char* name : {"tokens.bin", "mask.bin"})
    std::filesystem::rename(moved.path(name), moved.path(std::string("elsewhere/") + name));
  const std::string data = "--data.path=elsewhere/tokens.bin";
  EXPECT_TRUE(refused(moved.train({"--resume", data, "--data.loss_mask="}),
                      {"the checkpoint out/step-3 was made with"}));
  ASSERT_TRUE(ended(moved.train({"--resume", data, "--data.loss_mask=elsewhere/mask.bin"}), 0));
  EXPECT_EQ(whole.read("out/step-6/model.safetensors"), moved.read("out/step-6/model.safetensors"));
}

// No document crosses the end of a file.
TEST(Resume, InOtherFilesTheSameTokensAreOtherData) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  const std::string tokens = run.read("tokens.bin");
  run.files().write_text("a.bin", tokens.substr(0, 8000));
  run.files().write_text("b.bin", tokens.substr(8000));
  EXPECT_TRUE(refused(run.train({"--resume", "--data.path=[\"a.bin\", \"b.bin\"]"}),
                      {"data.path is ", "a.bin", "tokens.bin"}));
}

TEST(Resume, WithoutTheOptionIsRefused) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  const auto before = run.contents("out");
  EXPECT_TRUE(refused(run.train(), {"out already holds step-3", "add --resume",
                                    "choose another checkpoint.directory"}));
  EXPECT_TRUE(same_files(before, run.contents("out")));
}

}  // namespace
}  // namespace longstride
