// [eval] of longstride train: lines of their own in the metrics file, and the same training.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

class EvalDirectory : public RunDirectory {
 public:
  EvalDirectory() { write_tokens("held.bin", 3 * 256 + 50); }
  std::vector<Json> evaluations() const {
    std::vector<Json> lines;
    for (const Json& line : metrics())
      if (line.value("kind", "") == "eval") lines.push_back(line);
    return lines;
  }
};

const Strings kEval = {"--eval.path=held.bin", "--eval.every=2"};

Strings with(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(TrainEval, ChangesNothingAndWritesLines) {
  const EvalDirectory plain, evaluating;
  ASSERT_TRUE(ended(plain.train(), 0));
  ASSERT_TRUE(ended(evaluating.train(kEval), 0,
                    {"evaluates 4 samples every 2 steps", "eval after step 0  loss 5.",
                     "eval after step 6  loss "}));
  EXPECT_TRUE(plain.read("out/step-6/model.safetensors") ==
              evaluating.read("out/step-6/model.safetensors"));
  const std::vector<Json> lines = evaluating.evaluations();
  ASSERT_EQ(lines.size(), 4u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], 2 * i);
    EXPECT_EQ(lines[i]["targets"], 3 * 256 + 49);
    std::int64_t targets = 0;
    for (const Json& part : lines[i]["by_position"]) targets += part["targets"].get<int>();
    EXPECT_EQ(targets, 3 * 256 + 49);
  }
  EXPECT_EQ(evaluating.metrics().size(), 6u + 4u);
  // What `eval` says about the saved model, on the same stretches.
  const ProgramResult alone =
      evaluating.run({"eval", "--model", "out/step-6", "--tokens", "held.bin", "--context", "256",
                      "--chunk", "64", "--page", "16", "--device", "cpu", "--json"});
  ASSERT_EQ(alone.status, 0) << alone.text();
  EXPECT_EQ(parse_json(alone.out, "eval")["loss"], lines.back()["loss"]);
}

TEST(TrainEval, OnlyAtTheEndAndOnlySome) {
  const EvalDirectory run;
  ASSERT_TRUE(ended(run.train({"--eval.path=held.bin", "--eval.samples=1",
                               "--memory.activations=recompute", "--attention.kind=sparse"}),
                    0, {"evaluates 1 samples at the end"}));
  ASSERT_EQ(run.evaluations().size(), 1u);
  EXPECT_EQ(run.evaluations()[0]["targets"], 256);
}

TEST(TrainEval, GoesOnWhenResumed) {
  const EvalDirectory whole, resumed;
  ASSERT_TRUE(ended(whole.train(kEval), 0));
  ASSERT_TRUE(ended(resumed.train(with(kEval, {"--training.steps=4"})), 0));
  ASSERT_TRUE(ended(resumed.train(with(kEval, {"--resume"})), 0, {"resuming after step 4"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), resumed.contents("out/step-6")));
  const std::vector<Json> a = whole.evaluations(), b = resumed.evaluations();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i]["loss"], b[i]["loss"]) << i;
}

TEST(TrainEval, RefusesWhatCannotBe) {
  const EvalDirectory run;
  EXPECT_TRUE(refused(run.train({"--eval.every=2"}), {"eval.every is set and eval.path is not"}));
  EXPECT_TRUE(refused(run.train({"--eval.path=nowhere.bin"}), {"nowhere.bin"}));
  run.files().write("nothing.bin", std::vector<std::uint8_t>(3 * 256 + 50, 0));
  EXPECT_TRUE(
      refused(run.train(with(kEval, {"--eval.loss_mask=nothing.bin"})), {"hold nothing to learn"}));
  run.write_tokens("held.bin", 500, 100000);
  EXPECT_TRUE(refused(run.train(kEval), {"held.bin", "320"}));
  EXPECT_FALSE(std::filesystem::exists(run.path("out/metrics.jsonl")));
}

}  // namespace
}  // namespace longstride
