// data.mix, data.pack = "whole", data.long and the stub of an epoch: what a run does with them, and
// that it resumes exactly.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

void write_data(const RunDirectory& run) {
  run.write_tokens("a.bin", 3000);
  run.write_tokens("b.bin", 1700, 200);
}

// Documents end with token 5.
const Strings kMix = {"--data.path=[\"a.bin\", \"b.bin\"]", "--data.mix=[0.7, 0.3]",
                      "--data.document_token=5", "--training.batch=2"};
const Strings kWhole = {"--data.path=a.bin", "--data.document_token=5", "--data.pack=whole",
                        "--training.batch=3"};

Strings with(Strings words, const Strings& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Mix, ResumesToTheSameBytes) {
  for (const Strings& settings : {kMix, kWhole, with(kMix, {"--data.pack=whole"})}) {
    const RunDirectory whole, stopped;
    write_data(whole);
    write_data(stopped);
    ASSERT_TRUE(ended(whole.train(settings), 0));
    ASSERT_TRUE(ended(stopped.train(settings), 0));
    std::filesystem::remove_all(stopped.path("out/step-6"));
    ASSERT_TRUE(ended(stopped.train(with(settings, {"--resume"})), 0, {"resuming after step 3"}));
    EXPECT_TRUE(same_files(whole.contents("out/step-6"), stopped.contents("out/step-6")));
    EXPECT_TRUE(refused(stopped.train(with(settings, {"--resume", "--data.pack=false"})),
                        {"data.pack is false but the checkpoint"}));
  }
}

TEST(Mix, IsPartOfTheRun) {
  const RunDirectory run;
  write_data(run);
  ASSERT_TRUE(ended(run.train(kMix), 0));
  EXPECT_TRUE(refused(run.train(with(kMix, {"--resume", "--data.mix=[0.6, 0.4]"})),
                      {"data.mix is [0.6,0.4] but the checkpoint"}));
  // The sources in another order are other data.
  EXPECT_TRUE(refused(run.train(with(kMix, {"--resume", "--data.path=[\"b.bin\", \"a.bin\"]"})),
                      {"data.path is", "but the checkpoint"}));
}

TEST(Mix, DryRunTellsTheShares) {
  const RunDirectory run;
  write_data(run);
  const ProgramResult result = run.train(with(kMix, {"--dry-run"}));
  ASSERT_EQ(result.status, 0) << result.text();
  const std::string text = result.out + result.err;
  EXPECT_TRUE(
      says(text, {"4700 tokens in a mix", "70% a.bin (12 samples", "30% b.bin (7 samples"}));
}

TEST(Mix, BadSettings) {
  const RunDirectory run;
  write_data(run);
  EXPECT_TRUE(refused(run.train({"--data.mix=[1, 2]"}), {"data.mix has 2 shares", "1 entries"}));
  EXPECT_TRUE(refused(run.train({"--data.mix=[0]"}), {"data.mix must be array of numbers"}));
  EXPECT_TRUE(refused(run.train({"--data.long=drop"}),
                      {"data.long = \"drop\" has no effect with data.pack = true"}));
  EXPECT_TRUE(run.nothing_written());
}

TEST(LongDocuments, WhatIsLeftOutIsTold) {
  const RunDirectory run;  // one document of 4097 tokens
  const Strings settings = {"--data.pack=whole", "--dry-run"};
  EXPECT_TRUE(ended(run.train(with(settings, {"--data.long=cut"})), 0,
                    {"data.long = \"cut\": 1 documents", "3841 tokens"}));
  EXPECT_TRUE(refused(run.train(with(settings, {"--data.long=drop"})),
                      {"data.long = \"drop\" leaves nothing to learn", "\"split\" or \"cut\""}));
}

// 16 sequences and a stub of 5 tokens, which is left out.
TEST(Stub, MakesNoStepOfItsOwn) {
  const RunDirectory run;
  run.write_tokens("tokens.bin", 16 * 256 + 5);
  ASSERT_TRUE(ended(run.train({"--training.steps=17", "--checkpoint.every=0"}), 0,
                    {"the last 5 tokens of the data do not make a sequence and are left out"}));
  for (const Json& line : run.metrics())
    if (line.contains("tokens")) {
      EXPECT_EQ(line["tokens"], 256);
    }
}

// A checkpoint from before keeps its stubs, since its position counts them.
TEST(Stub, OldCheckpointsKeepTheirs) {
  const RunDirectory run;
  run.write_tokens("tokens.bin", 16 * 256 + 5);
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  std::string state = run.read("out/step-3/state/state.json");
  const std::string key = "\"drops_stub\"";
  ASSERT_NE(state.find(key), std::string::npos);
  state.replace(state.find(key), key.size(), "\"before_that\"");
  state.resize(state.size() - 17);
  state += fmt::format("{:016x}\n", checksum_of_text(state));
  run.files().write_text("out/step-3/state/state.json", state);
  const ProgramResult resumed = run.train({"--training.steps=17", "--resume"});
  ASSERT_TRUE(ended(resumed, 0));
  EXPECT_EQ(resumed.err.find("left out"), std::string::npos);
  std::int64_t stubs = 0;
  for (const Json& line : run.metrics()) stubs += line.value("tokens", 0) == 5 ? 1 : 0;
  EXPECT_EQ(stubs, 1) << "one of the 17 sequences of the epoch";
  // What it saves is an old one too.
  EXPECT_NE(run.read("out/step-17/state/state.json").find("\"drops_stub\": false"),
            std::string::npos);
}

}  // namespace
}  // namespace longstride
