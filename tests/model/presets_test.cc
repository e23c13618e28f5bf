#include "model/presets.h"

#include <gtest/gtest.h>

#include <map>

#include "model/parameters.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

TEST(Presets, HaveThePublishedNumberOfParameters) {
  const std::map<std::string, std::int64_t> published{
      {"qwen2.5-0.5b", 494'032'768},   {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-7b", 7'615'616'512},   {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352}, {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},   {"qwen3-32b", 32'762'123'264},
      {"llama-3.1-8b", 8'030'261'248}, {"llama-3.3-70b", 70'553'706'496},
      {"mistral-7b", 7'241'732'096},   {"phi-4", 14'659'507'200},
      {"olmo2-7b", 7'298'617'344},     {"gemma3-1b", 999'885'952},
      {"gemma3-4b", 3'880'263'168},  // without the image model
  };
  for (const auto& [name, count] : published)
    EXPECT_EQ(parameter_count(find_preset(name)), count) << name;
}

TEST(Presets, CountsAgreeWithTheListOfParameters) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = find_preset(name);
    std::int64_t sum = 0;
    for (const ParameterSpec& spec : parameter_specs(config)) sum += spec.shape.elements();
    EXPECT_EQ(parameter_count(config), sum) << name;
  }
}

TEST(Presets, ParseWithoutWarnings) {
  ::testing::internal::CaptureStderr();
  for (const std::string& name : preset_names()) find_preset(name);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Presets, ShapesThatOthersRelyOn) {
  const ModelConfig bench = find_preset("bench-cpu");
  EXPECT_EQ(bench.layers, 8);
  EXPECT_EQ(bench.hidden_size, 512);
  EXPECT_EQ(bench.query_heads, 8);
  EXPECT_EQ(bench.kv_heads, 2);
  EXPECT_EQ(bench.head_size, 64);
  EXPECT_EQ(bench.ffn_size, 1536);
  EXPECT_EQ(bench.vocabulary, 32768);
  EXPECT_FALSE(bench.tied_embeddings);
  EXPECT_EQ(find_preset("mistral-7b").windows, std::vector<std::int64_t>(32, 4096));
  EXPECT_EQ(find_preset("llama-3.1-8b").rope.type, RopeType::kLlama3);
  EXPECT_TRUE(find_preset("qwen2.5-0.5b").tied_embeddings);
  for (const char* name : {"tiny-qwen2", "tiny-qwen3", "tiny-llama", "tiny-mistral", "tiny-phi3",
                           "tiny-olmo2", "tiny-gemma3"}) {
    EXPECT_EQ(find_preset(name).hidden_size, 64);
    EXPECT_EQ(find_preset(name).layers, 2);
  }
}

TEST(Presets, TypoSuggestsTheNearest) {
  testing::expect_error(
      [] { find_preset("qwen2.5-7B"); },
      {"no preset named \"qwen2.5-7B\"", "did you mean qwen2.5-7b?", "mistral-7b"});
}

TEST(Presets, AWindowForEveryLayer) {
  for (const char* name :
       {"qwen2.5-0.5b", "tiny-qwen2", "tiny-qwen3", "tiny-mistral", "tiny-phi3"}) {
    const ModelConfig config = find_preset(name, 1000);
    EXPECT_EQ(config.windows, std::vector<std::int64_t>(config.windows.size(), 1000)) << name;
    // The written config parses to the same.
    EXPECT_EQ(parse_config(config.raw, "again").windows, config.windows) << name;
  }
  EXPECT_THROW(find_preset("tiny-llama", 1000), Error);
  EXPECT_THROW(find_preset("tiny-gemma3", 1000), Error);
}

}  // namespace
}  // namespace longstride
