// Training with other rotary positions than the model's own: what is saved, resumed and refused.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

const Json kYarn = {
    {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
const Strings kSettings = {"--model.preset=", "--model.path=model", "--model.rope_type=yarn",
                           "--model.rope_factor=4", "--model.rope_theta=20000"};

// Made for 64 positions; the run's context is 256.
void write_short_model(const RunDirectory& run) {
  run.write_model("model", changed_preset("tiny-qwen3", {{"max_position_embeddings", 64}}));
}

Strings with(Strings settings, const Strings& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

bool warns_of_the_context(const ProgramResult& result) {
  return result.err.find("positions the model is made for") != std::string::npos;
}

class Rope : public ::testing::Test {
 protected:
  Rope() { write_short_model(run_); }
  const RunDirectory run_;
};

TEST_F(Rope, TheSavedModelSaysSo) {
  const ProgramResult result = run_.train(kSettings);
  ASSERT_TRUE(ended(result, 0));
  EXPECT_FALSE(warns_of_the_context(result));
  Json expected = Json::parse(run_.read("model/config.json"));
  expected.update(
      {{"rope_scaling", kYarn}, {"rope_theta", 20000.0}, {"max_position_embeddings", 256}});
  for (const char* save : {"out/step-3", "out/step-6"})
    EXPECT_EQ(Json::parse(run_.read(std::string(save) + "/config.json")), expected);
}

TEST_F(Rope, TrainsLikeADirectoryThatStatesTheSame) {
  const RunDirectory stated;
  stated.write_model("model", changed_preset("tiny-qwen3", {{"rope_scaling", kYarn},
                                                            {"rope_theta", 20000.0},
                                                            {"max_position_embeddings", 256}}));
  ASSERT_TRUE(ended(run_.train(kSettings), 0));
  ASSERT_TRUE(ended(stated.train({"--model.preset=", "--model.path=model"}), 0));
  for (const char* file : {"model.safetensors", "config.json", "state/optimizer.safetensors"})
    EXPECT_EQ(run_.read(std::string("out/step-6/") + file),
              stated.read(std::string("out/step-6/") + file))
        << file;
  const RunDirectory plain;
  write_short_model(plain);
  ASSERT_TRUE(ended(plain.train({"--model.preset=", "--model.path=model"}), 0));
  EXPECT_NE(run_.read("out/step-6/model.safetensors"), plain.read("out/step-6/model.safetensors"));
}

// A PEFT directory does not say how positions were scaled; the state beside it does.
TEST_F(Rope, AnAdapterIsUsedWithThePositionsItWasTrainedWith) {
  ASSERT_TRUE(ended(run_.train(with(kSettings, {"--lora.rank=4"})), 0));
  const auto evaluate = [&](const std::string& model, const Strings& more) {
    const ProgramResult result = run_.run(with({"eval", "--model", model, "--tokens", "tokens.bin",
                                                "--context", "256", "--json", "--device", "cpu"},
                                               more));
    EXPECT_TRUE(ended(result, 0));
    return Json::parse(result.out).at("loss").get<double>();
  };
  const Strings adapter = {"--adapter", "out/step-6"},
                options = {"--rope-type", "yarn", "--rope-factor", "4", "--rope-theta", "20000"};
  const double loss = evaluate("model", adapter);
  EXPECT_EQ(evaluate("model", with(adapter, options)), loss);
  ASSERT_TRUE(ended(
      run_.run({"merge", "--model", "model", "--adapter", "out/step-6", "--out", "merged"}), 0));
  const Json config = Json::parse(run_.read("merged/config.json"));
  EXPECT_EQ(config.at("rope_scaling"), kYarn);
  EXPECT_EQ(config.at("rope_theta"), 20000.0);
  EXPECT_EQ(config.at("max_position_embeddings"), 256);
  EXPECT_NEAR(evaluate("merged", {}), loss, 1e-5 * loss);
  // As PEFT would save it: without options, the model's own positions count.
  std::filesystem::remove_all(run_.path("out/step-6/state"));
  EXPECT_NE(evaluate("model", adapter), loss);
  EXPECT_EQ(evaluate("model", with(adapter, options)), loss);
}

TEST_F(Rope, AResumedRunGivesTheSameBytes) {
  const RunDirectory stopped;
  write_short_model(stopped);
  ASSERT_TRUE(ended(run_.train(kSettings), 0));
  ASSERT_TRUE(ended(stopped.train(with(kSettings, {"--training.steps=3"})), 0));
  ASSERT_TRUE(
      ended(stopped.train(with(kSettings, {"--resume"})), 0, {"resuming after step 3", "6/6"}));
  EXPECT_TRUE(same_files(run_.contents("out/step-6"), stopped.contents("out/step-6")));
}

// A linear factor would change the positions again if it were applied to the checkpoint.
TEST(RopeOfAPreset, AResumedRunGivesTheSameBytes) {
  const Strings settings = {"--model.preset=tiny-qwen2", "--model.rope_type=linear",
                            "--model.rope_factor=2"};
  const RunDirectory whole, stopped;
  ASSERT_TRUE(ended(whole.train(settings), 0));
  ASSERT_TRUE(ended(stopped.train(with(settings, {"--training.steps=3"})), 0));
  ASSERT_TRUE(ended(stopped.train(with(settings, {"--resume"})), 0, {"resuming after step 3"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), stopped.contents("out/step-6")));
  const Json config = Json::parse(whole.read("out/step-6/config.json"));
  EXPECT_EQ(config["max_position_embeddings"], 262144);
  EXPECT_EQ(config["rope_scaling"], (Json{{"rope_type", "linear"}, {"factor", 2.0}}));
}

TEST_F(Rope, AResumeWithOthersIsRefusedByName) {
  ASSERT_TRUE(ended(run_.train(with(kSettings, {"--training.steps=3"})), 0));
  for (const auto& [setting, value, old] :
       std::vector<std::array<std::string, 3>>{{"model.rope_type", "linear", "yarn"},
                                               {"model.rope_theta", "30000", "20000"},
                                               {"model.rope_factor", "8", "4"},
                                               {"model.rope_factor", "", "4"},
                                               {"model.rope_original_positions", "32", "nothing"}})
    EXPECT_TRUE(refused(run_.train(with(kSettings, {"--resume", "--" + setting + "=" + value})),
                        {setting + " is ", value, old, "out/step-3", "put the old value back"}));
}

TEST_F(Rope, WarnsWhereTheSettingsDoNotReach) {
  const Strings dry = {"--model.preset=", "--model.path=model", "--dry-run"};
  EXPECT_TRUE(ended(run_.train(dry), 0, {"context 256 is longer than the 64 positions"}));
  EXPECT_TRUE(ended(run_.train(with(dry, {"--model.rope_type=yarn", "--model.rope_factor=2"})), 0,
                    {"context 256 is longer than the 128 positions"}));
  for (const Strings& settings :
       std::vector<Strings>{{"--model.rope_type=yarn", "--model.rope_factor=4"},
                            {"--model.rope_type=linear", "--model.rope_factor=4"},
                            {"--model.rope_type=llama3", "--model.rope_factor=8",
                             "--model.rope_original_positions=32"},
                            {"--model.rope_theta=2e6"}}) {
    const ProgramResult result = run_.train(with(dry, settings));
    EXPECT_TRUE(ended(result, 0));
    EXPECT_FALSE(warns_of_the_context(result)) << settings[0];
  }
}

TEST_F(Rope, AUsersMistakes) {
  const auto train = [&](const Strings& settings) {
    return run_.train(with({"--model.preset=", "--model.path=model"}, settings));
  };
  EXPECT_TRUE(refused(train({"--model.rope_type=yarn"}),
                      {"model.rope_type is yarn", "model.rope_factor to 4"}));
  EXPECT_TRUE(refused(train({"--model.rope_factor=4"}),
                      {"model.rope_factor is 4", "set model.rope_type to yarn"}));
  EXPECT_TRUE(refused(train({"--model.rope_type=dynamic"}), {"model.rope_type", "dynamic"}));
  EXPECT_TRUE(refused(train({"--model.rope_type=yarn", "--model.rope_factor=0.5"}),
                      {"model.rope_factor", "at least 1"}));
  EXPECT_TRUE(refused(train({"--model.rope_theta=0"}), {"model.rope_theta", "over 1"}));
  EXPECT_TRUE(refused(train({"--model.rope_original_positions=0"}),
                      {"model.rope_original_positions", "at least 1"}));
  EXPECT_TRUE(run_.nothing_written());
}

TEST_F(Rope, GradientsTakeTheSameSettings) {
  run_.write_model("stated", changed_preset("tiny-qwen3", {{"rope_scaling", kYarn},
                                                           {"rope_theta", 20000.0},
                                                           {"max_position_embeddings", 64}}));
  const auto gradients = [&](const std::string& model, const std::string& out,
                             const Strings& more) {
    return run_.run(with({"gradients", "--model", model, "--tokens", "tokens.bin", "--page", "16",
                          "--device", "cpu", "--out", out},
                         more));
  };
  const Strings yarn = {"--rope-type", "yarn", "--rope-factor", "4", "--rope-theta", "20000"};
  ASSERT_TRUE(ended(gradients("stated", "a.st", {}), 0));
  ASSERT_TRUE(ended(gradients("model", "b.st", yarn), 0));
  ASSERT_TRUE(ended(
      gradients("model", "c.st",
                {"--rope-original-positions", "1K", "--rope-type", "yarn", "--rope-factor", "4"}),
      0));
  EXPECT_EQ(run_.read("a.st"), run_.read("b.st"));
  EXPECT_NE(run_.read("a.st"), run_.read("c.st"));
  EXPECT_TRUE(refused(gradients("model", "d.st", {"--rope-factor", "4"}),
                      {"--rope-factor is 4", "set --rope-type to yarn"}));
  EXPECT_TRUE(ended(gradients("model", "d.st", {"--rope-type", "dynamic"}), 2, {"--rope-type"}));
}

}  // namespace
}  // namespace longstride
