// Results that could not be written to stdout were lost with exit status 0.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

TEST(OutputLost, AFullDiskIsAFailure) {
  const RunDirectory run;
  run.write_model("model", changed_preset("tiny-llama"));
  run.write_tokens("few.bin", 65);
  RunOptions full;
  full.out = "/dev/full";
  for (const Strings& words : {Strings{"inspect", "model"},
                               {"inspect", "model", "--json"},
                               {"inspect", "tokens.bin"},
                               {"gradients", "--model", "model", "--tokens", "few.bin", "--chunk",
                                "64", "--page", "16", "--device", "cpu"},
                               {"bench", "step", "--preset", "tiny-llama", "--context", "64",
                                "--chunk", "64", "--page", "16", "--device", "cpu"},
                               {"--version"},
                               {"train", "--help"}})
    EXPECT_TRUE(ended(run.run(words, full), 1,
                      {"error: the result cannot be written to standard output",
                       "No space left on device", "  hint: "}))
        << words.front();
}

TEST(OutputLost, AReaderThatHasGoneIsAFailureAndNoSignal) {
  const RunDirectory run;
  RunOptions unread;
  unread.out_unread = true;
  EXPECT_TRUE(ended(run.run({"inspect", "tokens.bin"}, unread), 1, {"error: ", "Broken pipe"}));
}

}  // namespace
}  // namespace longstride
