// The parser's own messages had no hint, NaN passed for a number, and options that did nothing were
// taken without a word.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

ProgramResult bench_step(const Strings& more) {
  Strings words = {"bench",  "step", "--preset",  "tiny-llama", "--chunk",  "64",
                   "--page", "16",   "--context", "256",        "--device", "cpu"};
  words.insert(words.end(), more.begin(), more.end());
  return RunDirectory().run(words);
}

TEST(Usage, TheParsersMessagesHaveHints) {
  EXPECT_TRUE(
      refused(bench_step({"--layers", "-1"}),
              {"--layers", "-1 is too small", "longstride bench step --help says what it takes"}));
  EXPECT_TRUE(
      refused(bench_step({"--attention", "sparsely"}), {"sparsely", "{dense,window,sparse}"}));
  EXPECT_TRUE(refused(bench_step({"--contxt", "1"}), {"--contxt"}));
  EXPECT_TRUE(refused(run_program({"gradients"}), {"--model", "longstride gradients --help"}));
  EXPECT_TRUE(refused(run_program({"bench"}), {"longstride bench --help"}));
  EXPECT_TRUE(refused(run_program({}), {"longstride --help"}));
  const ProgramResult help = run_program({"bench", "kernels", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--seconds"), std::string::npos);
}

TEST(Usage, NamesOfFilesAreNotEmpty) {
  for (const std::string option : {"--json", "--trace"})
    EXPECT_TRUE(refused(bench_step({option, ""}), {option, "the name is empty"}));
  EXPECT_TRUE(refused(run_program({"gradients", "--model", ".", "--tokens", ".", "--out", ""}),
                      {"--out", "the name is empty"}));
}

TEST(Usage, NumbersFitTheirUse) {
  EXPECT_TRUE(refused(bench_step({"--repeat", "99999999999999999999"}), {"--repeat", "1000000"}));
  for (const std::string position : {"9223372036854775807", "-1"})
    EXPECT_TRUE(refused(
        run_program({"gradients", "--model", ".", "--tokens", ".", "--first-position", position}),
        {"--first-position"}));
  EXPECT_TRUE(
      refused(run_program({"gradients", "--model", ".", "--tokens", ".", "--document-token", "-7"}),
              {"--document-token"}));
  EXPECT_TRUE(refused(run_program({"demo", "--steps", "999999999999999"}), {"--steps"}));
}

TEST(Usage, NumbersAreFinite) {
  for (const std::string option : {"--seconds", "--warm-up"})
    for (const std::string value : {"nan", "inf", "-1", "x"})
      EXPECT_TRUE(
          refused(run_program({"bench", "kernels", "--filter", "swiglu", option, value}), {option}))
          << option << " " << value;
}

TEST(Usage, OptionsThatWouldDoNothingAreRefused) {
  EXPECT_TRUE(refused(bench_step({"--disk-path", "."}), {"--disk-path without --disk-memory"}));
  EXPECT_TRUE(
      refused(bench_step({"--disk-memory", "1M"}), {"--disk-memory without --page-memory"}));
  EXPECT_TRUE(
      refused(bench_step({"--host-memory", "1M"}), {"--host-memory without --page-memory"}));
  EXPECT_TRUE(refused(bench_step({"--update", "1", "--disk-path", "."}), {"--disk-path without"}));
}

TEST(Usage, AndWhatThePlanDoesNotNeedIsSaid) {
  EXPECT_TRUE(
      ended(bench_step({"--page-memory", "1G"}), 0, {"warning: --page-memory 1G holds all pages"}));
  EXPECT_TRUE(
      ended(bench_step({"--page-memory", "least", "--disk-memory", "1G", "--disk-path", "."}), 0,
            {"warning: --disk-memory 1G: host memory holds all pages"}));
}

}  // namespace
}  // namespace longstride
