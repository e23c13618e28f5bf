// What a save copies of the base model is read at the start: the directory may go afterwards, and a
// resumed run does not need it.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> with_model(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--model.preset=", "--model.path=model"});
  return more;
}

TEST(BaseModelGone, TheRunSavesAllTheSame) {
  const RunDirectory run;
  run.write_model("model", find_preset("tiny-llama"));
  run.files().write_text("model/tokenizer.json", "{\"a\": 1}");
  Program program(RunDirectory::train_arguments(with_model()), {.directory = run.path()});
  while (program.running() && !fs::exists(run.path("out/metrics.jsonl")))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fs::rename(run.path("model"), run.path("moved"));
  ASSERT_TRUE(ended(program.wait(), 0, {"saved out/step-6"}));
  EXPECT_EQ(run.read("out/step-6/tokenizer.json"), "{\"a\": 1}");
}

TEST(BaseModelGone, ResumeNeedsTheCheckpointAlone) {
  const RunDirectory run, whole;
  for (const RunDirectory* r : {&run, &whole}) {
    r->write_model("model", find_preset("tiny-llama"));
    r->files().write_text("model/tokenizer.json", "{}");
  }
  ASSERT_TRUE(ended(whole.train(with_model()), 0));
  ASSERT_TRUE(ended(run.train(with_model({"--training.steps=3"})), 0));
  fs::remove_all(run.path("model"));
  ASSERT_TRUE(ended(run.train(with_model({"--resume"})), 0,
                    {"model.path cannot be read", "resuming after step 3"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), run.contents("out/step-6")));
}

TEST(BaseModelGone, ASideFileThatCannotBeReadIsRefusedAtTheStart) {
  const RunDirectory run;
  run.write_model("model", find_preset("tiny-llama"));
  fs::create_symlink("nowhere", run.path("model/tokenizer.json"));
  EXPECT_TRUE(refused(run.train(with_model()), {"tokenizer.json", "every save copies it"}));
  EXPECT_TRUE(run.nothing_written());
}

}  // namespace
}  // namespace longstride
