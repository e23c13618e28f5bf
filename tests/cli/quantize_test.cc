// longstride train with model.quantize: less memory, the same bits when resumed, saves that
// bitsandbytes' readers and this program read, and what is refused.
#include "model/quantize_specs.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

Strings with(Strings settings, const Strings& more = {}) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

const Strings kNf4 = {"--model.quantize=nf4", "--model.freeze=*_proj.weight"};

TEST(QuantizeRun, StoppedAndResumed) {
  const RunDirectory whole, resumed;
  for (const RunDirectory* run : {&whole, &resumed})
    run->write_model("base", changed_preset("tiny-llama"), DType::kF32);
  const Strings settings = with(kNf4, {"--model.preset=", "--model.path=base"});
  ASSERT_TRUE(ended(whole.train(settings), 0));
  ASSERT_TRUE(ended(resumed.train(with(settings, {"--training.steps=3"})), 0));
  ASSERT_TRUE(ended(resumed.train(with(settings, {"--resume"})), 0, {"resuming after step 3"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), resumed.contents("out/step-6")));
  const ModelDirectory saved = ModelDirectory::open(whole.path("out/step-6"));
  EXPECT_EQ(quantization_of(saved.specs()), "nf4");
  EXPECT_EQ(saved.config().raw.at("quantization_config").at("bnb_4bit_quant_type"), "nf4");
  // Norms, embeddings and the head trained on.
  const ModelDirectory earlier = ModelDirectory::open(whole.path("out/step-3"));
  for (const ParameterSpec& spec : saved.specs())
    EXPECT_EQ(
        std::ranges::equal(saved.reader().bytes(spec.name), earlier.reader().bytes(spec.name)),
        is_projection(spec))
        << spec.name;
  for (const Strings& other : {Strings{"--model.quantize=int8"}, Strings{"--model.quantize="}})
    EXPECT_TRUE(
        refused(resumed.train(with(with(settings, {"--training.steps=9", "--resume"}), other)),
                {"model.quantize is ", "put the old value back"}));
}

TEST(QuantizeRun, TakesTheMemoryThatItSays) {
  const RunDirectory plain, nf4, int8;
  const Strings freeze = {"--model.freeze=*_proj.weight", "--training.steps=1"};
  ASSERT_TRUE(ended(plain.train(freeze), 0));
  ASSERT_TRUE(ended(nf4.train(with(freeze, {"--model.quantize=nf4"})), 0));
  ASSERT_TRUE(ended(int8.train(with(freeze, {"--model.quantize=int8"})), 0));
  const auto bytes = [](const RunDirectory& run) {
    return run.metrics().front().at("bytes_weights").get<double>();
  };
  EXPECT_LT(bytes(nf4), bytes(int8));
  EXPECT_LT(bytes(int8), bytes(plain));
}

TEST(QuantizeRun, RefusesWhatCannotBe) {
  const RunDirectory run;
  EXPECT_TRUE(
      refused(run.train({"--model.quantize=nf4"}),
              {"model.layers.0.self_attn.q_proj.weight is quantized (nf4) and cannot be trained",
               "model.freeze"}));
  EXPECT_TRUE(refused(run.train({"--model.quantize=nf4", "--model.train=*.up_proj.weight"}),
                      {"model.layers.0.mlp.up_proj.weight is quantized"}));
  EXPECT_TRUE(refused(run.train({"--model.quantize=fp4"}), {"model.quantize", "nf4"}));
  EXPECT_TRUE(run.nothing_written());
}

TEST(QuantizeRun, BenchAndPlan) {
  const RunDirectory run;
  EXPECT_TRUE(
      ended(run.run({"bench", "step", "--preset", "tiny-llama", "--context", "256", "--chunk", "64",
                     "--page", "16", "--device", "cpu", "--quantize", "nf4"}),
            0));
  const ProgramResult plan = run.run({"plan", "--preset", "llama-3.3-70b", "--machine", "h200",
                                      "--context", "64K", "--quantize", "nf4", "--chunk", "4096"});
  if (plan.text().find("this build has no CUDA") != std::string::npos)
    GTEST_SKIP() << "built without CUDA";
  EXPECT_TRUE(ended(plan, 0));
}

}  // namespace
}  // namespace longstride
