// longstride inspect, on everything that the program writes and reads.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

class Inspect : public ::testing::Test {
 protected:
  Json json(const std::string& path, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"inspect", path, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_.run(words);
    EXPECT_TRUE(ended(result, 0));
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out);
  }
  static void expect_keys(const Json& json, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) EXPECT_TRUE(json.contains(key)) << key;
  }

  const RunDirectory run_;
};

TEST_F(Inspect, AModel) {
  run_.write_model("model", find_preset("tiny-mistral"));
  const Json model = json("model");
  expect_keys(model, {"kind", "architecture", "parameters", "layers", "hidden_size", "query_heads",
                      "kv_heads", "head_size", "ffn_size", "vocabulary", "tied_embeddings", "rope",
                      "windows", "max_positions", "weights"});
  EXPECT_EQ(model["kind"], "model");
  EXPECT_EQ(model["architecture"], "mistral");
  EXPECT_EQ(model["windows"], (std::vector<int>{64, 64}));
  EXPECT_EQ(model["parameters"], parameter_count(find_preset("tiny-mistral")));
  EXPECT_EQ(model["weights"]["bytes_by_type"]["F32"],
            4 * parameter_count(find_preset("tiny-mistral")));
}

TEST_F(Inspect, ACheckpointAndItsRun) {
  ASSERT_TRUE(ended(run_.train(), 0));
  const Json checkpoint = json("out/step-3");
  expect_keys(checkpoint,
              {"kind", "step", "data_position", "seed", "verified", "numerics", "model", "config"});
  EXPECT_EQ(checkpoint["kind"], "checkpoint");
  EXPECT_EQ(checkpoint["step"], 3);
  EXPECT_EQ(checkpoint["seed"], 7);
  EXPECT_EQ(checkpoint["verified"], true);
  EXPECT_EQ(checkpoint["numerics"]["chunk_tokens"], 64);
  EXPECT_EQ(checkpoint["config"]["training"]["context"], 256);
  EXPECT_EQ(checkpoint["model"]["architecture"], "llama");

  const Json run = json("out");
  EXPECT_EQ(run["kind"], "run");
  EXPECT_EQ(run["newest"], "step-6");
  EXPECT_EQ(run["checkpoint"]["step"], 6);
}

TEST_F(Inspect, SafetensorsFiles) {
  run_.write_model("model", find_preset("tiny-qwen2"), DType::kBF16);
  const Json file = json("model/model.safetensors");
  EXPECT_EQ(file["kind"], "safetensors");
  EXPECT_EQ(file["tensors"], parameter_specs(find_preset("tiny-qwen2")).size());
  EXPECT_EQ(file["entries"]["model.embed_tokens.weight"]["dtype"], "BF16");
  EXPECT_EQ(file["entries"]["model.embed_tokens.weight"]["shape"], (std::vector<int>{320, 64}));
}

TEST_F(Inspect, TokenFiles) {
  run_.files().write("a.bin", std::vector<std::uint32_t>{7, 3, 200});
  run_.files().write("b.bin", std::vector<std::uint16_t>{1, 2, 9});
  run_.files().write("c.txt", std::vector<char>{'a', 'b'});
  EXPECT_EQ(json("a.bin"), Json::parse(R"({"kind": "tokens", "format": "u32", "tokens": 3,
                                           "smallest": 3, "largest": 200})"));
  EXPECT_EQ(json("b.bin")["format"], "u16");
  EXPECT_EQ(json("b.bin")["largest"], 9);
  EXPECT_EQ(json("a.bin", {"--format", "u16"})["tokens"], 6);
  EXPECT_EQ(json("c.txt", {"--format", "text"})["largest"], 'b');
}

TEST_F(Inspect, LinesForPeople) {
  run_.write_model("model", find_preset("tiny-llama"));
  const ProgramResult result = run_.run({"inspect", "model"});
  EXPECT_TRUE(ended(result, 0));
  EXPECT_TRUE(says(result.out, {"architecture", "llama", "weights.bytes", "KiB", "127296"}));
}

TEST_F(Inspect, NothingThere) {
  EXPECT_TRUE(
      refused(run_.run({"inspect", "nowhere"}), {"nowhere does not exist", "name a checkpoint"}));
  std::filesystem::create_directory(run_.path("empty"));
  EXPECT_TRUE(refused(run_.run({"inspect", "empty"}),
                      {"empty holds neither a model nor checkpoints", "config.json"}));
}

}  // namespace
}  // namespace longstride
