// longstride train with model.train, model.freeze and rates by glob: what is frozen stays as it is
// and takes no memory, the rest trains on; wrong globs are refused.
#include <cstring>

#include "model/safetensors_reader.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

SafetensorsReader model_after(const RunDirectory& run, int step) {
  return SafetensorsReader::open_model(run.path(fmt::format("out/step-{}", step)));
}

bool same(const SafetensorsReader& a, const SafetensorsReader& b, const std::string& name) {
  return std::ranges::equal(a.bytes(name), b.bytes(name));
}

double figure(const RunDirectory& run, const char* key) {
  return run.metrics().front().at(key).get<double>();
}

TEST(Freeze, LayersBelowTheLowestTrainedOne) {
  const RunDirectory all, part, head;
  ASSERT_TRUE(ended(all.train(), 0));
  ASSERT_TRUE(ended(part.train({R"(--model.train=["model.layers.1.*", "lm_head.*"])"}), 0));
  ASSERT_TRUE(ended(head.train({"--model.train=lm_head.weight"}), 0));
  const SafetensorsReader first = model_after(part, 3), last = model_after(part, 6);
  for (const std::string& name : last.names())
    EXPECT_EQ(same(first, last, name),
              !name.starts_with("model.layers.1.") && !name.starts_with("lm_head."))
        << name;
  for (const char* key : {"bytes_gradients", "bytes_optimizer", "bytes_kv_gradient_pages"}) {
    EXPECT_LT(figure(part, key), figure(all, key)) << key;
    EXPECT_LT(figure(head, key), figure(part, key)) << key;
  }
  EXPECT_EQ(figure(head, "bytes_kv_gradient_pages"), 0);
  // The same forward pass, with other weights from the second step on.
  EXPECT_EQ(figure(part, "loss"), figure(all, "loss"));
  EXPECT_EQ(figure(head, "loss"), figure(all, "loss"));
  EXPECT_NE(part.metrics().back().at("loss"), all.metrics().back().at("loss"));
}

TEST(Freeze, StoppedAndResumed) {
  const Strings settings = {R"(--model.freeze=["*norm*", "model.layers.0.*", "*embed*"])",
                            "--memory.optimizer=host"};
  const auto with = [&](const Strings& more) {
    Strings all = settings;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const RunDirectory whole, resumed;
  ASSERT_TRUE(ended(whole.train(settings), 0));
  ASSERT_TRUE(ended(resumed.train(with({"--training.steps=3"})), 0));
  ASSERT_TRUE(ended(resumed.train(with({"--resume"})), 0, {"resuming after step 3"}));
  EXPECT_TRUE(same_files(whole.contents("out/step-6"), resumed.contents("out/step-6")));
  // What is trained cannot change.
  EXPECT_TRUE(refused(resumed.train({"--training.steps=9", "--resume"}),
                      {"model.freeze is ", "put the old value back"}));
}

TEST(Freeze, RatesByGlob) {
  const RunDirectory plain, same_rates, none;
  ASSERT_TRUE(ended(plain.train(), 0));
  ASSERT_TRUE(ended(same_rates.train({"--optimizer.learning_rates=*=1e-3",
                                      R"(--optimizer.weight_decays=["*_proj.weight=0.1"])"}),
                    0));
  EXPECT_EQ(plain.read("out/step-6/model.safetensors"),
            same_rates.read("out/step-6/model.safetensors"));
  // A rate of 0 changes nothing, also by decay; the last one that matches counts.
  ASSERT_TRUE(ended(none.train({R"(--optimizer.learning_rates=["*=0", "lm_head.*=1e-3"])"}), 0));
  const SafetensorsReader first = model_after(none, 3), last = model_after(none, 6);
  for (const std::string& name : last.names())
    EXPECT_EQ(same(first, last, name), name != "lm_head.weight") << name;
}

TEST(Freeze, TheFirstLinesSayHowMuchIsTrained) {
  const RunDirectory run;
  EXPECT_TRUE(ended(run.train({"--model.train=lm_head.weight", "--training.steps=1"}), 0,
                    {"parameters (20480 trained)"}));
}

TEST(Freeze, RefusesWhatCannotBe) {
  const RunDirectory run;
  const std::pair<Strings, Strings> cases[] = {
      {{"--model.freeze=model.layer.*"},
       {"model.freeze: no parameter of the model matches \"model.layer.*\"",
        "names are as model."}},
      {{"--model.train=*.lora_A"}, {"model.train: no parameter of the model matches \"*.lora_A\""}},
      {{"--model.freeze=*"}, {"leave nothing to train", "narrower"}},
      {{"--optimizer.learning_rates=lm_head.weight"},
       {"optimizer.learning_rates: \"lm_head.weight\" is not a glob and a number"}},
      {{"--optimizer.learning_rates=lm_head.weight=fast"}, {"is not a glob and a number"}},
      {{"--optimizer.weight_decays=lm_head.weight=-1"}, {"of at least 0"}},
      {{"--optimizer.learning_rates=lm_head.*=1e-5", "--model.freeze=lm_head.*"},
       {"optimizer.learning_rates: \"lm_head.*=1e-5\" has no effect", "model.freeze"}},
      {{"--optimizer.weight_decays=nothing=0"},
       {"optimizer.weight_decays: no parameter of the model matches \"nothing\""}}};
  for (const auto& [settings, words] : cases) EXPECT_TRUE(refused(run.train(settings), words));
  EXPECT_FALSE(std::filesystem::exists(run.path("out")));
}

}  // namespace
}  // namespace longstride
