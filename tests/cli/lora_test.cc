// longstride train with [lora]: the model stays as it is, checkpoints are PEFT directories, and a
// run that is stopped goes on with the same bits; wrong settings are refused.
#include "base/json.h"
#include "model/safetensors_reader.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

SafetensorsReader adapter_after(const RunDirectory& run, int step) {
  return SafetensorsReader::open_file(
      run.path(fmt::format("out/step-{}/adapter_model.safetensors", step)));
}

TEST(Lora, TrainsAdaptersAlone) {
  const RunDirectory all, lora;
  ASSERT_TRUE(ended(all.train(), 0));
  ASSERT_TRUE(ended(lora.train({"--lora.rank=4"}), 0));
  const SafetensorsReader first = adapter_after(lora, 3), last = adapter_after(lora, 6);
  EXPECT_FALSE(std::filesystem::exists(lora.path("out/step-6/model.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(lora.path("out/step-6/config.json")));
  for (const std::string& name : last.names()) {
    EXPECT_TRUE(name.starts_with("base_model.model.model.layers.") &&
                (name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight")))
        << name;
    EXPECT_FALSE(std::ranges::equal(first.bytes(name), last.bytes(name))) << name;
  }
  EXPECT_EQ(last.names().size() % 14, 0u);
  // New adapters change nothing, so the first loss is the model's.
  EXPECT_EQ(all.metrics().front().at("loss"), lora.metrics().front().at("loss"));
  EXPECT_LT(lora.metrics().back().at("loss"), lora.metrics().front().at("loss"));
  for (const char* key : {"bytes_gradients", "bytes_optimizer", "trainable_parameters"})
    EXPECT_LT(lora.metrics().front().at(key), all.metrics().front().at(key)) << key;
}

TEST(Lora, StoppedAndResumed) {
  for (const Strings& settings :
       {Strings{"--lora.rank=3", "--lora.dropout=0.25"},
        Strings{"--lora.rank=8", "--lora.rslora=true", "--lora.targets=[\"q_proj\", \"down_proj\"]",
                "--lora.layers=1", "--memory.optimizer=host"},
        Strings{"--lora.rank=2", "--lora.also_train=[\"lm_head\", \"input_layernorm\"]",
                "--lora.dropout=0.5"},
        Strings{"--lora.rank=4", "--model.quantize=nf4", "--lora.dropout=0.1",
                "--optimizer.state=8bit"},
        Strings{"--lora.rank=4", "--model.quantize=int8",
                "--lora.targets=[\"k_proj\", \"up_proj\"]", "--memory.optimizer=host"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(settings, " ")));
    const RunDirectory whole, resumed;
    ASSERT_TRUE(ended(whole.train(settings), 0));
    ASSERT_TRUE(ended(resumed.train(settings + Strings{"--training.steps=3"}), 0));
    ASSERT_TRUE(ended(resumed.train(settings + Strings{"--resume"}), 0, {"resuming after step 3"}));
    EXPECT_TRUE(same_files(whole.contents("out/step-6"), resumed.contents("out/step-6")));
  }
}

// The base is quantized, and the adapters correct what that lost.
TEST(Lora, OnAQuantizedModel) {
  const RunDirectory plain, quantized;
  ASSERT_TRUE(ended(plain.train({"--lora.rank=8"}), 0));
  ASSERT_TRUE(ended(quantized.train({"--lora.rank=8", "--model.quantize=nf4"}), 0));
  const auto loss = [](const RunDirectory& run, bool last) {
    const std::vector<Json> lines = run.metrics();
    return (last ? lines.back() : lines.front()).at("loss").get<double>();
  };
  EXPECT_NEAR(loss(plain, false), loss(quantized, false), 0.1);
  EXPECT_NE(loss(plain, false), loss(quantized, false));
  EXPECT_LT(loss(quantized, true), loss(quantized, false));
  EXPECT_LT(quantized.metrics().front().at("bytes_weights"),
            plain.metrics().front().at("bytes_weights"));
}

TEST(Lora, TheChunkDoesNotChooseWhatIsDropped) {
  const RunDirectory a, b;
  const Strings settings = {"--lora.rank=4", "--lora.dropout=0.5", "--training.steps=2"};
  ASSERT_TRUE(ended(a.train(settings + Strings{"--training.chunk=32"}), 0));
  ASSERT_TRUE(ended(b.train(settings + Strings{"--training.chunk=64"}), 0));
  EXPECT_NEAR(a.metrics().back().at("loss").get<double>(),
              b.metrics().back().at("loss").get<double>(), 1e-4);
}

TEST(Lora, BeginsWithAnAdapter) {
  const RunDirectory first, second;
  ASSERT_TRUE(ended(first.train({"--lora.rank=4", "--lora.alpha=4"}), 0));
  const std::string path = "--lora.path=" + first.path("out/step-6").string();
  ASSERT_TRUE(ended(second.train({path, "--training.steps=1"}), 0));
  // It goes on where the first run ended.
  EXPECT_LT(second.metrics().front().at("loss"), first.metrics().front().at("loss"));
  const Json config = read_json(second.path("out/step-1/adapter_config.json"));
  EXPECT_EQ(config.at("r"), 4);
  EXPECT_EQ(config.at("lora_alpha"), 4);
  const RunDirectory other;
  EXPECT_TRUE(refused(other.train({path, "--lora.rank=8"}), {"lora.rank differs", "leave"}));
}

TEST(Lora, WrongSettingsAreRefused) {
  const RunDirectory run;
  EXPECT_TRUE(refused(run.train({"--lora.alpha=8"}), {"lora.alpha", "lora.rank is not"}));
  EXPECT_TRUE(refused(run.train({"--lora.rank=4", "--lora.targets=query"}),
                      {"lora.targets: \"query\"", "q_proj"}));
  EXPECT_TRUE(refused(run.train({"--lora.rank=4", "--lora.layers=1-99"}), {"no layer 99"}));
  EXPECT_TRUE(refused(run.train({"--lora.rank=4", "--lora.layers=x"}), {"lora.layers: \"x\""}));
  EXPECT_TRUE(refused(run.train({"--lora.rank=4", "--lora.also_train=nothing"}), {"nothing"}));
  EXPECT_TRUE(refused(run.train({"--lora.rank=4", "--lora.also_train=q_proj"}), {"q_proj"}));
  EXPECT_TRUE(refused(run.train({"--lora.rank=4", "--model.train=*norm*"}),
                      {"model.train and [lora]", "lora.also_train"}));
  EXPECT_TRUE(refused(run.train({"--lora.path=" + run.path("nowhere").string()}), {"nowhere"}));
  EXPECT_FALSE(std::filesystem::exists(run.path("out")));
}

TEST(Lora, AnotherRankIsRefusedOnResume) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--lora.rank=4", "--training.steps=3"}), 0));
  EXPECT_TRUE(refused(run.train({"--lora.rank=8", "--resume"}), {"lora.rank"}));
  EXPECT_TRUE(
      refused(run.train({"--lora.rank=4", "--lora.targets=q_proj", "--resume"}), {"lora.targets"}));
}

}  // namespace
}  // namespace longstride
