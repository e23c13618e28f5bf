// A dry run said that everything checks out where the data held tokens that the model does not
// know, or were numbers of another width; a real run learned from such data for hours, or ended
// when it came to the bad token.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

// Refused by a dry run and by a real one alike, which leaves the weights alone and saves nothing.
void expect_refused(const RunDirectory& run, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& parts) {
  std::vector<std::string> dry = arguments;
  dry.push_back("--dry-run");
  EXPECT_TRUE(refused(run.train(dry), parts));
  EXPECT_TRUE(run.nothing_written());
  EXPECT_TRUE(refused(run.train(arguments), parts));
  EXPECT_EQ(run.names("out"), (std::set<std::string>{"metrics.jsonl"}));
  EXPECT_TRUE(run.metrics().empty());
}

std::vector<std::uint32_t> tokens_below(std::uint64_t below) {
  Random random(1);
  std::vector<std::uint32_t> tokens(16 * 256 + 2);
  for (std::uint32_t& t : tokens) t = 1 + static_cast<std::uint32_t>(random.below(below - 1));
  return tokens;
}

TEST(ScanBeforeTraining, ATokenThatTheFirstStepsDoNotMeet) {
  const RunDirectory run;
  std::vector<std::uint32_t> tokens = tokens_below(320);
  tokens[15 * 256 + 9] = 4000;
  run.files().write("tokens.bin", tokens);
  expect_refused(run, {"--data.shuffle=false"},
                 {"tokens.bin: token 3849 has the value 4000", "vocabulary is 320"});
}

TEST(ScanBeforeTraining, WideTokensReadAsNarrowOnes) {
  const RunDirectory run;
  run.files().write("tokens.bin", tokens_below(320));
  expect_refused(run, {"--data.format=u16"}, {"tokens.bin: every second", "looks like u32"});
}

TEST(ScanBeforeTraining, NarrowTokensReadAsWideOnes) {
  const RunDirectory run;
  const std::vector<std::uint32_t> tokens = tokens_below(320);
  run.files().write("tokens.bin", std::vector<std::uint16_t>(tokens.begin(), tokens.end()));
  expect_refused(run, {}, {"tokens.bin: token ", "looks like u16: set data.format"});
}

TEST(ScanBeforeTraining, Int64) {
  const RunDirectory run;
  const std::vector<std::uint32_t> tokens = tokens_below(320);
  run.files().write("tokens.bin", std::vector<std::uint64_t>(tokens.begin(), tokens.end()));
  expect_refused(run, {}, {"tokens.bin: every second", "int64"});
}

TEST(ScanBeforeTraining, AResumedRunKeepsWhatItHas) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  std::vector<std::uint32_t> tokens = tokens_below(320);
  tokens.back() = 320;
  run.files().write("tokens.bin", tokens);
  const auto before = run.contents("out");
  EXPECT_TRUE(refused(run.train({"--resume"}), {"has the value 320"}));
  EXPECT_TRUE(same_files(before, run.contents("out")));
}

TEST(ScanBeforeTraining, ADryRunShowsDocumentsTargetsAndEpochs) {
  const RunDirectory run;
  std::vector<std::uint32_t> tokens(1000, 5);
  tokens[99] = tokens[299] = tokens[999] = 7;  // 100, 200 and 700 tokens
  run.files().write("tokens.bin", tokens);
  std::vector<std::uint8_t> mask(1000, 1);
  std::fill(mask.begin(), mask.begin() + 300, std::uint8_t{0});
  run.files().write("mask.bin", mask);
  const ProgramResult result =
      run.train({"--dry-run", "--data.document_token=7", "--data.loss_mask=mask.bin",
                 "--training.context=500", "--training.batch=2"});
  // 2 samples; 997 tokens follow another, 298 of them in the first 300.
  EXPECT_TRUE(ended(result, 0,
                    {"1000 tokens, 2 samples an epoch", "3, the longest of 700", "median of 200",
                     "699 an epoch, 29.9% are masked", "largest token", "6, 6.00 epochs",
                     "everything checks out"}));
  EXPECT_EQ(result.err.find("warning"), std::string::npos) << result.err;
}

TEST(ScanBeforeTraining, WarnsOfWhatIsProbablyNotMeant) {
  const RunDirectory run;
  const auto dry = [&](std::vector<std::string> words) {
    words.push_back("--dry-run");
    return run.train(words);
  };
  EXPECT_TRUE(ended(dry({"--training.context=8K"}), 0,
                    {"warning: training.context is 8192, but the data hold 4097 tokens"}));
  run.files().write("tokens.bin", std::vector<std::uint32_t>(500, 5));
  EXPECT_TRUE(ended(dry({"--data.document_token=7"}), 0,
                    {"warning: data.document_token 7 does not occur"}));
  std::vector<std::uint32_t> tokens(500, 5);
  tokens[200] = 7;
  run.files().write("tokens.bin", tokens);
  EXPECT_TRUE(ended(dry({"--data.document_token=7", "--data.pack=false", "--training.context=400"}),
                    0, {"warning: training.context is 400, but the longest document has 299"}));
  // A real run says it too.
  EXPECT_TRUE(ended(run.train({"--data.document_token=9", "--training.steps=1"}), 0,
                    {"warning: data.document_token 9 does not occur"}));
}

}  // namespace
}  // namespace longstride
