// Prepared directories and Megatron datasets through the program: train, eval, gradients, generate.
#include "tests/cli/run_directory.h"
#include "tests/data/prepared_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;
using Documents = std::vector<std::vector<std::uint32_t>>;

Documents random_documents(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Documents documents(count);
  for (auto& document : documents) {
    document.resize(20 + random.below(200));
    for (std::uint32_t& t : document) t = static_cast<std::uint32_t>(random.below(320));
  }
  return documents;
}

class Prepared : public testing::Test {
 protected:
  void SetUp() override {
    const Documents train = random_documents(30, 1), eval = random_documents(4, 2);
    PreparedDirectory data(run_.path("data"), 2, 320);
    data.add("train", {{.documents = Documents(train.begin(), train.begin() + 17)},
                       {.documents = Documents(train.begin() + 17, train.end())}});
    data.add("eval", {{.documents = eval}});
    data.write();
    write_flat("train", train);
    write_flat("eval", eval);
  }
  // The same documents as a token file and an index.
  void write_flat(const std::string& name, const Documents& documents) const {
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint64_t> starts;
    for (const auto& document : documents) {
      starts.push_back(tokens.size());
      tokens.insert(tokens.end(), document.begin(), document.end());
    }
    run_.files().write(name + ".bin", tokens);
    run_.files().write(name + ".index", starts);
  }
  ProgramResult on_data(const Strings& more = {}) const {
    Strings words = {"--data.path=data"};
    words.insert(words.end(), more.begin(), more.end());
    return run_.train(words);
  }
  const RunDirectory run_;
};

TEST_F(Prepared, TrainsAndEvaluatesAsOnTheSameTokens) {
  ASSERT_TRUE(ended(on_data({"--eval.path=data"}), 0));
  const auto metrics = without_timings(run_.metrics());
  const std::string weights = run_.read("out/step-6/model.safetensors");
  std::filesystem::remove_all(run_.path("out"));
  ASSERT_TRUE(ended(run_.train({"--data.path=train.bin", "--data.document_index=train.index",
                                "--eval.path=eval.bin", "--eval.document_index=eval.index"}),
                    0));
  EXPECT_EQ(without_timings(run_.metrics()), metrics);
  EXPECT_TRUE(run_.read("out/step-6/model.safetensors") == weights);
}

TEST_F(Prepared, EvalReadsTheEvalSplit) {
  run_.write_model("model", changed_preset("tiny-llama"));
  const auto eval = [&](const Strings& more) {
    Strings words = {"eval",   "--model", "model",   "--device", "cpu",
                     "--page", "16",      "--chunk", "64",       "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_.run(words);
    EXPECT_EQ(result.status, 0) << result.text();
    Json json = parse_json(result.out, "eval");
    for (const char* differs : {"seconds", "tokens"}) json.erase(differs);
    return json;
  };
  const Json prepared = eval({"--tokens", "data"});
  EXPECT_EQ(prepared["documents"].size(), 4u);
  EXPECT_EQ(prepared, eval({"--tokens", "eval.bin", "--document-index", "eval.index"}));
  EXPECT_TRUE(refused(run_.run({"eval", "--model", "model", "--tokens", "data", "--format", "u16"}),
                      {"--format does not go with data", "leave --format out"}));
  flip_byte(run_.path("data/eval-00000.tokens"));
  EXPECT_TRUE(refused(run_.run({"eval", "--model", "model", "--tokens", "data"}),
                      {"data/eval-00000.tokens has been altered"}));
  EXPECT_TRUE(refused(on_data({"--eval.path=data"}), {"data/eval-00000.tokens has been altered"}));
}

TEST_F(Prepared, GradientsAndGenerateReadTheTrainSplit) {
  run_.write_model("model", changed_preset("tiny-llama"));
  PreparedDirectory one(run_.path("one"), 2, 320);
  one.add("train", {{.documents = {{1, 2, 3}, {4, 5, 6, 7}}}}).write();
  const ProgramResult gradients =
      run_.run({"gradients", "--model", "model", "--tokens", "one", "--device", "cpu"});
  ASSERT_EQ(gradients.status, 0) << gradients.text();
  const Json json = parse_json(gradients.out, "gradients");
  EXPECT_EQ(json["tokens"], 7);
  EXPECT_EQ(json["targets"], 5);
  EXPECT_EQ(json["documents"], 2);
  const ProgramResult text = run_.run({"generate", "--model", "model", "--tokens", "one", "--count",
                                       "2", "--device", "cpu", "--json"});
  ASSERT_EQ(text.status, 0) << text.text();
  EXPECT_EQ(parse_json(text.out, "generate")["prompt_tokens"], 7);
}

TEST_F(Prepared, InspectSaysWhatIsThere) {
  const ProgramResult result = run_.run({"inspect", "data", "--json"});
  ASSERT_EQ(result.status, 0) << result.text();
  const Json json = parse_json(result.out, "inspect");
  EXPECT_EQ(json["kind"], "prepared data");
  EXPECT_EQ(json["train"]["documents"], 30);
  EXPECT_EQ(json["train"]["shards"], 2);
  EXPECT_EQ(json["eval"]["documents"], 4);
}

// An altered shard changes no weights, and a dry run tells.
TEST_F(Prepared, AlteredShardsAreRefused) {
  flip_byte(run_.path("data/train-00001.tokens"));
  EXPECT_TRUE(refused(on_data({"--dry-run"}), {"data/train-00001.tokens has been altered",
                                               "data/manifest.json", "prepare the data again"}));
  EXPECT_TRUE(refused(on_data(), {"data/train-00001.tokens has been altered"}));
  EXPECT_FALSE(std::filesystem::exists(run_.path("out/step-1")));
  EXPECT_TRUE(run_.metrics().empty());
  const std::string tokens = run_.read("data/train-00001.tokens");
  run_.files().write_text("data/train-00001.tokens", tokens.substr(0, tokens.size() - 2));
  EXPECT_TRUE(refused(on_data(), {"data/train-00001.tokens has", "bytes", "cut short"}));
}

TEST_F(Prepared, WhatTheManifestSaysIsNotSaidAgain) {
  for (const char* setting : {"data.format=u32", "data.document_token=3",
                              "data.document_index=train.index", "data.loss_mask=train.index"}) {
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    EXPECT_TRUE(refused(on_data({std::string("--") + setting}),
                        {key + " does not go with data, whose manifest.json", "leave " + key}));
  }
  // The format is that of the evaluation's data.
  run_.files().write("eval16.bin", std::vector<std::uint16_t>(300, 7));
  EXPECT_TRUE(ended(on_data({"--eval.path=eval16.bin", "--data.format=u16"}), 0));
}

TEST_F(Prepared, TheVocabularyMustFit) {
  PreparedDirectory(run_.path("large"), 2, 321).add("train", {{.documents = {{1, 2}}}}).write();
  EXPECT_TRUE(refused(run_.train({"--data.path=large"}),
                      {"large/manifest.json", "vocabulary of 321", "the model has 320"}));
}

TEST_F(Prepared, WeightsOfZeroAndOneAreAMask) {
  const Documents documents = random_documents(12, 3);
  std::vector<std::uint8_t> mask;
  std::vector<float> weights;
  for (const auto& document : documents)
    for (std::size_t i = 0; i < document.size(); ++i) {
      mask.push_back(document[i] % 3 == 0 ? 0 : 1);
      weights.push_back(mask.back());
    }
  PreparedDirectory(run_.path("masked"), 2, 320)
      .add("train", {{.documents = documents, .mask = mask}})
      .write();
  PreparedDirectory(run_.path("weighted"), 2, 320)
      .add("train", {{.documents = documents, .weights = weights}})
      .write();
  ASSERT_TRUE(ended(run_.train({"--data.path=masked", "--checkpoint.directory=a"}), 0));
  ASSERT_TRUE(ended(run_.train({"--data.path=weighted", "--checkpoint.directory=b"}), 0));
  EXPECT_TRUE(run_.read("a/step-6/model.safetensors") == run_.read("b/step-6/model.safetensors"));

  // Twice the weight, twice the loss and the gradient, in the first step to the bit; an evaluation
  // counts targets alike.
  for (float& weight : weights) weight *= -2;
  PreparedDirectory(run_.path("doubled"), 2, 320)
      .add("train", {{.documents = documents, .weights = weights}})
      .write();
  const Strings both = {"--data.path=doubled", "--eval.path=doubled", "--checkpoint.directory=c",
                        "--eval.every=1"};
  ASSERT_TRUE(ended(run_.train(both), 0));
  const Json plain = run_.metrics("a/metrics.jsonl").at(0), doubled = [&] {
    for (const Json& line : run_.metrics("c/metrics.jsonl"))
      if (line.contains("gradient_norm")) return line;
    return Json();
  }();
  EXPECT_EQ(doubled.at("loss").get<double>(), -2 * plain.at("loss").get<double>());
  EXPECT_EQ(doubled.at("gradient_norm").get<double>(), 2 * plain.at("gradient_norm").get<double>());
  EXPECT_EQ(doubled.at("targets"), plain.at("targets"));
  for (const Json& line : run_.metrics("c/metrics.jsonl")) {
    if (!line.contains("gradient_norm")) {
      EXPECT_GT(line.at("loss").get<double>(), 0);
    }
  }
}

TEST(Megatron, TrainsAsOnTheSameTokens) {
  const RunDirectory run;
  std::vector<std::int32_t> tokens;
  const std::vector<std::int32_t> lengths = {700, 1, 1200, 500};
  std::vector<std::int64_t> pointers, documents = {0, 2, 3, 4};
  for (const std::int32_t length : lengths) {
    pointers.push_back(static_cast<std::int64_t>(4 * tokens.size()));
    for (std::int32_t i = 0; i < length; ++i)
      tokens.push_back(static_cast<std::int32_t>((7 * tokens.size() + tokens.size() / 9) % 320));
  }
  run.files().write("x.bin", tokens);
  run.files().write("index", std::vector<std::uint64_t>{0, 701, 1901});
  std::string index("MMIDIDX\0\0\1\0\0\0\0\0\0\0\4\4\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0", 34);
  index.append(reinterpret_cast<const char*>(lengths.data()), 16);
  index.append(reinterpret_cast<const char*>(pointers.data()), 32);
  index.append(reinterpret_cast<const char*>(documents.data()), 32);
  run.files().write_text("x.idx", index);
  ASSERT_TRUE(ended(run.train({"--data.path=x.bin", "--data.format=megatron"}), 0));
  ASSERT_TRUE(ended(run.train({"--data.path=x.bin", "--data.document_index=index",
                               "--checkpoint.directory=flat"}),
                    0));
  EXPECT_TRUE(run.read("out/step-6/model.safetensors") ==
              run.read("flat/step-6/model.safetensors"));
  EXPECT_TRUE(refused(run.train({"--data.path=x.idx", "--checkpoint.directory=other"}),
                      {"x.idx is the index of a Megatron dataset", "\"megatron\""}));
  run.files().write_text("x.idx", index.substr(0, 90));
  EXPECT_TRUE(refused(
      run.train({"--data.path=x", "--data.format=megatron", "--checkpoint.directory=other"}),
      {"x.idx", "too short"}));
}

}  // namespace
}  // namespace longstride
