// Options that name a file to write replaced whatever was there: a model's weights, the data, a
// config.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

constexpr const char* kForeign = "exists and is not ";

TEST(OutputOverwrites, ATraceReplacesTracesAlone) {
  const RunDirectory run;
  const std::string tokens = run.read("tokens.bin"), config = run.read("run.toml");
  EXPECT_TRUE(refused(run.train({"--trace", "tokens.bin"}), {"--trace tokens.bin", kForeign}));
  EXPECT_TRUE(refused(run.train({"--trace", "run.toml"}), {"--trace run.toml", kForeign}));
  EXPECT_EQ(run.read("tokens.bin"), tokens);
  EXPECT_EQ(run.read("run.toml"), config);
  EXPECT_TRUE(run.nothing_written());

  run.files().write_text("t.json", "");  // nothing is lost with it
  EXPECT_TRUE(ended(run.train({"--trace", "t.json", "--training.steps=1"}), 0));
  const std::string first = run.read("t.json");
  EXPECT_TRUE(
      ended(run.train({"--trace", "t.json", "--training.steps=2", "--resume"}), 0, {"trace: "}));
  EXPECT_NE(run.read("t.json"), first);
}

TEST(OutputOverwrites, ATraceDoesNotReplaceWhatTheRunHasWritten) {
  const RunDirectory run;
  EXPECT_TRUE(ended(run.train({"--trace", "m", "--metrics.file=m", "--training.steps=1"}), 0,
                    {"warning: trace: --trace m", kForeign}));
  EXPECT_EQ(run.metrics("m").size(), 1u);
}

TEST(OutputOverwrites, GradientsReplaceGradientsAlone) {
  const RunDirectory run;
  run.write_model("model", changed_preset("tiny-llama"));
  run.write_model("other", changed_preset("tiny-llama"));
  run.write_tokens("few.bin", 65);
  const auto gradients = [&](const std::string& out) {
    return run.run({"gradients", "--model", "model", "--tokens", "few.bin", "--out", out, "--chunk",
                    "64", "--page", "16", "--device", "cpu"});
  };
  const std::string weights = run.read("other/model.safetensors"), tokens = run.read("tokens.bin");
  for (const std::string name :
       {"tokens.bin", "run.toml", "other/model.safetensors", "other/config.json"})
    EXPECT_TRUE(refused(gradients(name), {"--out " + name, kForeign})) << name;
  EXPECT_TRUE(refused(gradients("model/model.safetensors"), {"is a file of the model"}));
  EXPECT_EQ(run.read("other/model.safetensors"), weights);
  EXPECT_EQ(run.read("tokens.bin"), tokens);

  run.files().write_text("g.part", "mine");  // was the name of an unfinished file
  ASSERT_TRUE(ended(gradients("g"), 0));
  ASSERT_TRUE(ended(gradients("g"), 0));  // an earlier result may go
  EXPECT_EQ(run.read("g.part"), "mine");
  EXPECT_EQ(run.names().count("g"), 1u);
}

TEST(OutputOverwrites, ResultsOfBenchReplaceResultsAlone) {
  const RunDirectory run;
  const Strings step = {"bench",  "step", "--preset",  "tiny-llama", "--chunk",  "64",
                        "--page", "16",   "--context", "64",         "--device", "cpu"};
  const Strings kernels = {"bench", "kernels",   "--filter", "swiglu",   "--seconds",
                           "0.001", "--warm-up", "0",        "--device", "cpu"};
  const std::string tokens = run.read("tokens.bin");
  for (Strings words : {step, kernels}) {
    words.insert(words.end(), {"--json", "tokens.bin"});
    EXPECT_TRUE(refused(run.run(words), {"--json tokens.bin", kForeign}));
    EXPECT_EQ(run.read("tokens.bin"), tokens);
    words.back() = "b.json";
    EXPECT_TRUE(ended(run.run(words), 0));
    EXPECT_TRUE(ended(run.run(words), 0));
  }
  Strings both = step;
  both.insert(both.end(), {"--json", "x", "--trace", "./x"});
  EXPECT_TRUE(refused(run.run(both), {"--trace and --json are both x"}));
}

}  // namespace
}  // namespace longstride
