// A path that is no UTF-8 ended a finished run in an exception of the JSON library, when its
// checkpoint was written.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

TEST(NonUtf8Path, ARunIsTrainedResumedAndInspected) {
  const RunDirectory run;
  const std::string odd = "d\xff\xfe";
  std::filesystem::create_directory(run.path(odd));
  std::filesystem::rename(run.path("tokens.bin"), run.path(odd + "/tokens.bin"));
  run.write_tokens("few.bin", 65);
  const std::vector<std::string> places = {"--data.path=" + odd + "/tokens.bin",
                                           "--checkpoint.directory=" + odd + "/out",
                                           "--metrics.file=" + odd + "/m.jsonl"};
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(), places.begin(), places.end());
    return run.train(more);
  };
  ASSERT_TRUE(ended(train({"--trace", odd + "/trace.json", "--training.steps=2"}), 0));
  const Json trace = Json::parse(run.read(odd + "/trace.json"));
  EXPECT_FALSE(trace["traceEvents"].empty());
  ASSERT_TRUE(ended(train({"--resume", "--training.steps=3"}), 0, {"resuming after step 2"}));
  EXPECT_EQ(run.metrics(odd + "/m.jsonl").size(), 3u);
  EXPECT_TRUE(std::filesystem::exists(run.path(odd + "/out/step-3/state/state.json")));

  for (const std::string& what : {odd + "/out", odd + "/out/step-3"})
    for (const bool as_json : {false, true}) {
      std::vector<std::string> words = {"inspect", what};
      if (as_json) words.push_back("--json");
      const ProgramResult result = run.run(words);
      ASSERT_TRUE(ended(result, 0));
      EXPECT_TRUE(!as_json || Json::accept(result.out)) << result.out;
    }
  EXPECT_TRUE(
      ended(run.run({"gradients", "--model", odd + "/out/step-3", "--tokens", "few.bin", "--out",
                     odd + "/g", "--chunk", "64", "--page", "16", "--device", "cpu"}),
            0));
  EXPECT_TRUE(
      ended(run.run({"bench", "step", "--preset", "tiny-llama", "--context", "64", "--chunk", "64",
                     "--page", "16", "--device", "cpu", "--json", odd + "/b.json"}),
            0));
  EXPECT_TRUE(refused(train({"--resume", "--training.seed=8"}), {"training.seed is 8"}));
}

TEST(NonUtf8Path, AMistakeInOneIsSaid) {
  EXPECT_TRUE(refused(RunDirectory().train({"--data.path=none\xff"}), {"none\xff"}));
  EXPECT_TRUE(refused(run_program({"train", "none\xff.toml"}), {"none\xff.toml"}));
}

}  // namespace
}  // namespace longstride
