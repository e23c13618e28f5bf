// A run on the text of a directory that also held its output read its own checkpoints and metrics
// as text, and after the first save no longer knew its data when it was resumed.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

class TextRun : public RunDirectory {
 public:
  TextRun() {
    for (const char* name : {"words/a.txt", "words/b.txt"})
      files().write_text(name, std::string(2000, name[6]));
  }
  ProgramResult text(std::vector<std::string> words, const std::string& out = "words/out") const {
    words.insert(words.end(), {"--data.path=words", "--data.format=text",
                               "--checkpoint.directory=" + out, "--memory.disk_path=words/disk"});
    return train(words);
  }
};

TEST(TextOwnOutput, IsLeftOut) {
  const TextRun apart, within;
  std::filesystem::create_directories(apart.path("words/disk"));
  std::filesystem::create_directories(within.path("words/disk"));
  ASSERT_TRUE(ended(apart.text({}, "out"), 0));
  ASSERT_TRUE(ended(within.text({"--training.steps=3"}), 0, {"4000 tokens"}));
  const ProgramResult resumed = within.text({"--resume"});
  ASSERT_TRUE(ended(resumed, 0,
                    {"4000 tokens", "left out, as this run writes there: words/disk, words/out"}));
  EXPECT_EQ(resumed.err.find("other data"), std::string::npos) << resumed.err;
  EXPECT_TRUE(within.read("words/out/step-6/model.safetensors") ==
              apart.read("out/step-6/model.safetensors"));
}

TEST(TextOwnOutput, ByALinkToo) {
  const TextRun run;
  std::filesystem::create_directories(run.path("words/disk"));
  std::filesystem::create_directory_symlink(run.path("words"), run.path("link"));
  ASSERT_TRUE(ended(run.text({"--training.steps=1"}, "link/out"), 0));
  EXPECT_TRUE(ended(run.text({"--dry-run", "--resume"}, "link/out"), 0, {"4000 tokens"}));
}

TEST(TextOwnOutput, NamedByItselfIsRefused) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=1"}), 0));
  EXPECT_TRUE(refused(run.train({"--resume", "--data.path=out/metrics.jsonl", "--data.format=text",
                                 "--training.context=32"}),
                      {"out/metrics.jsonl is an output of this run"}));
}

}  // namespace
}  // namespace longstride
