// longstride gradients: the loss on stdout, the gradients in a file.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

class Gradients : public ::testing::Test {
 protected:
  Gradients() {
    run_.write_model("model", find_preset("tiny-qwen2"));
    run_.write_tokens("tokens.bin", 300);
  }

  ProgramResult gradients(const Strings& more) const {
    Strings words = {"gradients", "--model", "model", "--tokens", "tokens.bin", "--page", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return run_.run(words);
  }
  Json result(const Strings& more) const {
    const ProgramResult program = gradients(more);
    EXPECT_TRUE(ended(program, 0));
    return Json::parse(program.out);
  }

  const RunDirectory run_;
};

TEST_F(Gradients, PrintsTheLossAndWritesEveryTensor) {
  const Json json = result({"--chunk", "64", "--out", "deep/g.safetensors"});
  for (const char* key :
       {"loss", "tokens", "targets", "correct", "documents", "seconds", "numerics"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key : {"forward", "recompute", "backward"})
    EXPECT_TRUE(json["seconds"].contains(key)) << key;
  EXPECT_EQ(json["tokens"], 300);
  EXPECT_EQ(json["targets"], 299);
  EXPECT_EQ(json["documents"], 1);
  EXPECT_EQ(json["numerics"]["chunk_tokens"], 64);
  EXPECT_NEAR(json["loss"].get<double>(), 5.77, 0.2);  // log 320

  EXPECT_EQ(run_.names("deep"), (std::set<std::string>{"g.safetensors"}));
  const SafetensorsReader file = SafetensorsReader::open_file(run_.path("deep/g.safetensors"));
  const std::vector<ParameterSpec> specs = parameter_specs(find_preset("tiny-qwen2"));
  EXPECT_EQ(file.names().size(), specs.size());
  for (const ParameterSpec& spec : specs) {
    ASSERT_TRUE(file.contains(spec.name)) << spec.name;
    const std::vector<float> values = file.read_floats(spec.name);
    EXPECT_EQ(static_cast<std::int64_t>(values.size()), spec.shape.elements());
    EXPECT_TRUE(std::ranges::any_of(values, [](float x) { return x != 0; })) << spec.name;
  }
}

TEST_F(Gradients, WritesTheLossOfEveryTarget) {
  std::ofstream mask(run_.path("mask.bin"), std::ios::binary);
  for (int i = 0; i < 300; ++i) mask.put(static_cast<char>(i % 3 == 0 ? 1 : 0));
  mask.close();
  const Json json = result({"--chunk", "64", "--loss-mask", "mask.bin", "--losses", "l.st"});
  EXPECT_EQ(json["targets"], 99);  // 3, 6, ... 297
  const SafetensorsReader file = SafetensorsReader::open_file(run_.path("l.st"));
  const std::vector<float> losses = file.read_floats("loss");
  ASSERT_EQ(losses.size(), 300u);
  double sum = 0;
  for (std::size_t t = 0; t < losses.size(); ++t) {
    EXPECT_EQ(losses[t] != 0, t % 3 == 2 && t < 299) << t;
    sum += static_cast<double>(losses[t]);
  }
  EXPECT_NEAR(sum / 99, json["loss"].get<double>(), 1e-5);
  EXPECT_TRUE(refused(gradients({"--losses", "tokens.bin"}), {"--losses", "tokens.bin"}));
}

TEST_F(Gradients, TheChunkDoesNotMatter) {
  const double whole = result({"--chunk", "512"})["loss"].get<double>();
  for (const char* chunk : {"16", "64", "128"})
    EXPECT_NEAR(result({"--chunk", chunk})["loss"].get<double>(), whole, 1e-6) << chunk;
}

TEST_F(Gradients, KeptChunksDoNotChangeABit) {
  result({"--chunk", "64", "--out", "1.safetensors"});
  for (const std::string keep : {"2", "5", "99"}) {
    result({"--chunk", "64", "--keep-chunks", keep, "--out", keep + ".safetensors"});
    EXPECT_EQ(run_.read("1.safetensors") == run_.read(keep + ".safetensors"), true) << keep;
  }
}

TEST_F(Gradients, InBf16TheyAreCloseAndRepeat) {
  result({"--chunk", "16", "--out", "f32.safetensors"});
  const Json json =
      result({"--chunk", "16", "--kv-gradient-dtype", "bf16", "--out", "1.safetensors"});
  EXPECT_EQ(json["numerics"]["kv_gradient_dtype"], "bf16");
  result({"--chunk", "16", "--kv-gradient-dtype", "bf16", "--out", "2.safetensors", "--keep-chunks",
          "3"});
  EXPECT_EQ(run_.read("1.safetensors") == run_.read("2.safetensors"), true);
  EXPECT_EQ(run_.read("1.safetensors") == run_.read("f32.safetensors"), false);
  const SafetensorsReader exact = SafetensorsReader::open_file(run_.path("f32.safetensors")),
                          close = SafetensorsReader::open_file(run_.path("1.safetensors"));
  for (const std::string& name : exact.names()) {
    const std::vector<float> a = close.read_floats(name), b = exact.read_floats(name);
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      norm += std::pow(static_cast<double>(b[i]), 2);
    }
    EXPECT_LT(difference, 0.02 * 0.02 * norm) << name;
  }
  EXPECT_TRUE(ended(gradients({"--kv-gradient-dtype", "f16"}), 2, {"--kv-gradient-dtype"}));
}

// Attention depends only on differences of positions.
TEST_F(Gradients, TheFirstPositionHardlyMatters) {
  const double at_0 = result({"--chunk", "64"})["loss"].get<double>();
  const double at_1000 =
      result({"--chunk", "64", "--first-position", "1000"})["loss"].get<double>();
  EXPECT_NE(at_0, at_1000);
  EXPECT_NEAR(at_0, at_1000, 1e-4);
  EXPECT_TRUE(ended(gradients({"--first-position", "-1"}), 2, {"--first-position"}));
}

TEST_F(Gradients, DocumentsByToken) {
  std::vector<std::uint32_t> tokens(100);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::uint32_t>(1 + i % 50);
  tokens[29] = tokens[69] = 0;
  run_.files().write("tokens.bin", tokens);
  run_.files().write("starts.u64", std::vector<std::uint64_t>{0, 30, 70});
  const Json by_token = result({"--document-token", "0"});
  EXPECT_EQ(by_token["documents"], 3);
  EXPECT_EQ(by_token["targets"], 97);
  EXPECT_EQ(result({"--document-index", "starts.u64"})["loss"], by_token["loss"]);
  EXPECT_NE(result({})["loss"], by_token["loss"]);
}

TEST_F(Gradients, AUserSMistakes) {
  EXPECT_TRUE(refused(gradients({"--chunk", "40"}), {"chunk of 40", "multiple of 16"}));
  EXPECT_TRUE(
      refused(run_.run({"gradients", "--model", "model", "--tokens", "tokens.bin", "--page", "0"}),
              {"a page of 0 tokens", "use 128"}));
  EXPECT_TRUE(refused(gradients({"--keep-chunks", "0"}), {"--keep-chunks is 0"}));
  EXPECT_TRUE(refused(gradients({"--out", "tokens.bin/g"}), {"tokens.bin"}));
  EXPECT_TRUE(ended(run_.run({"gradients", "--tokens", "tokens.bin"}), 2, {"--model"}));
  run_.write_tokens("tokens.bin", 1);
  EXPECT_TRUE(refused(gradients({}), {"tokens.bin", "give at least two"}));
}

}  // namespace
}  // namespace longstride
