// Ctrl-C and its kin: what was ignored stays ignored, the first one says what happens, one before
// the first update leaves nothing behind that would block the next run, and a save is not cut.
#include <fstream>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// A step long enough to be met in the middle.
std::vector<std::string> slow(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--training.context=4096", "--training.steps=2"});
  return RunDirectory::train_arguments(more);
}

template <class F>
bool wait_for(Program& program, const F& now) {
  while (program.running() && !now()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return program.running();
}

TEST(StopSignals, AnIgnoredOneStaysIgnored) {
  const RunDirectory run;
  for (const int signal : {SIGHUP, SIGINT}) {
    fs::remove_all(run.path("out"));
    const auto before = std::signal(signal, SIG_IGN);  // as nohup does; children inherit it
    Program program(RunDirectory::train_arguments({}), {.directory = run.path()});
    std::signal(signal, before);
    wait_for(program, [&] { return fs::exists(run.path("out/metrics.jsonl")); });
    program.send(signal);
    EXPECT_TRUE(ended(program.wait(), 0, {"step 6/6"}));
  }
}

TEST(StopSignals, BeforeTheFirstUpdateNothingIsSaved) {
  const RunDirectory run;
  run.write_tokens("tokens.bin", 5000);
  bool hit = false;
  for (int attempt = 0; attempt < 20 && !hit; ++attempt) {
    fs::remove_all(run.path("out"));
    Program program(slow(), {.directory = run.path()});
    wait_for(program, [&] { return fs::exists(run.path("out")); });
    program.send(SIGINT);
    const ProgramResult result = program.wait();
    hit = result.err.find("before the first update") != std::string::npos;
    if (hit) {
      EXPECT_TRUE(ended(result, 128 + SIGINT, {"stopping, then saving", "nothing to save"}));
    }
  }
  ASSERT_TRUE(hit) << "no attempt met the first step";
  EXPECT_EQ(run.names("out").count("step-0"), 0u);
  // The corrected run may begin.
  EXPECT_TRUE(ended(run.train({"--training.steps=1"}), 0, {"saved out/step-1"}));
}

TEST(StopSignals, ASecondOneDoesNotCutASave) {
  const RunDirectory run;
  run.write_model("model", changed_preset("tiny-llama", {{"vocab_size", 60000}}));
  const auto saving = [&] {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(run.path("out"), none))
      if (entry.path().filename().string().find(".unfinished-") != std::string::npos) return true;
    return false;
  };
  bool hit = false;
  for (int attempt = 0; attempt < 20 && !hit; ++attempt) {
    fs::remove_all(run.path("out"));
    Program program(RunDirectory::train_arguments({"--model.preset=", "--model.path=model",
                                                   "--training.steps=100", "--checkpoint.every=0"}),
                    {.directory = run.path()});
    wait_for(program, [&] {
      std::error_code none;
      return fs::exists(run.path("out/metrics.jsonl")) &&
             fs::file_size(run.path("out/metrics.jsonl"), none) > 0;
    });
    program.send(SIGINT);
    if (!wait_for(program, saving)) continue;
    program.send(SIGINT);
    const ProgramResult result = program.wait();
    hit = result.err.find("a save is under way") != std::string::npos;
    if (hit) {
      EXPECT_TRUE(ended(result, 128 + SIGINT, {"saved out/step-"}));
    }
  }
  ASSERT_TRUE(hit) << "no attempt met the save";
}

}  // namespace
}  // namespace longstride
