// longstride eval: the losses of the training step, by document and by position.
#include "model/safetensors_reader.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

class Eval : public testing::Test {
 protected:
  void SetUp() override {
    run_.write_model("model", changed_preset("tiny-llama"));
    // Documents of 200, 90 and 210 tokens.
    run_.write_tokens("tokens.bin", 500);
    run_.files().write("index.bin", std::vector<std::uint64_t>{0, 200, 290});
  }
  ProgramResult eval(const Strings& more) const {
    Strings words = {"eval", "--model", "model", "--tokens", "tokens.bin", "--page",
                     "16",   "--chunk", "64",    "--device", "cpu",        "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_.run(words);
  }
  Json json(const Strings& more) const {
    const ProgramResult result = eval(more);
    EXPECT_EQ(result.status, 0) << result.text();
    return parse_json(result.out, "eval");
  }
  // Per-token losses of the training step over the whole file.
  std::vector<float> losses(const Strings& more) const {
    Strings words = {"gradients", "--model", "model",    "--tokens", "tokens.bin", "--page",   "16",
                     "--chunk",   "64",      "--device", "cpu",      "--losses",   "losses.st"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_TRUE(ended(run_.run(words), 0));
    return SafetensorsReader::open_file(run_.path("losses.st")).read_floats("loss");
  }
  const RunDirectory run_;
};

double sum(const std::vector<float>& values) {
  double total = 0;
  for (const float v : values) total += static_cast<double>(v);
  return total;
}

TEST_F(Eval, GivesTheLossesOfTheTrainingStep) {
  std::vector<double> losses_seen;
  for (const Strings& how : {Strings{},
                             {"--attention", "sparse", "--budget", "4"},
                             {"--kv-dtype", "int8"},
                             {"--attention", "sparse", "--budget", "4", "--kv-dtype", "fp8"}}) {
    const Json whole = json(how);
    EXPECT_EQ(whole["targets"], 499);
    // Sums of the same numbers in the same order: equal to the last digit.
    EXPECT_EQ(whole["loss"].get<double>(), sum(losses(how)) / 499);
    EXPECT_EQ(whole["documents"].size(), 1u);
    EXPECT_EQ(whole["model"], "model");
    EXPECT_EQ(whole["tokens"], "tokens.bin");
    EXPECT_TRUE(whole.at("adapter").is_null());
    losses_seen.push_back(whole["loss"].get<double>());
  }
  EXPECT_NE(losses_seen[2], losses_seen[0]) << "pages in 8 bits change the loss a little";
  EXPECT_NEAR(losses_seen[2], losses_seen[0], 1e-3 * losses_seen[0]);
}

TEST_F(Eval, PartsAddUp) {
  const Json all = json({"--document-index", "index.bin"});
  EXPECT_EQ(all["targets"], 497);
  double by_document = 0, by_position = 0;
  std::int64_t targets = 0;
  const std::vector<int> lengths = {200, 90, 210};
  ASSERT_EQ(all["documents"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& d = all["documents"][i];
    EXPECT_EQ(d["tokens"], lengths[i]);
    EXPECT_EQ(d["targets"], lengths[i] - 1);
    by_document += d["loss"].get<double>() * d["targets"].get<double>();
    EXPECT_EQ(d["all_correct"].get<bool>(), d["correct"] == d["targets"]);
  }
  for (const Json& p : all["by_position"]) {
    targets += p["targets"].get<std::int64_t>();
    by_position += p["loss"].get<double>() * p["targets"].get<double>();
    EXPECT_EQ(p["to"].get<std::int64_t>(), 2 * p["from"].get<std::int64_t>() - 1);
  }
  EXPECT_EQ(targets, 497);
  EXPECT_NEAR(by_document, 497 * all["loss"].get<double>(), 1e-9);
  EXPECT_NEAR(by_position, 497 * all["loss"].get<double>(), 1e-9);
  // Each document alone has the same loss as among the others.
  const Json first = json({"--document-index", "index.bin", "--documents", "1"});
  EXPECT_EQ(first["documents"][0], all["documents"][0]);
  // Cut into parts of 100: two of 200, one of 90, three of 210.
  EXPECT_EQ(json({"--document-index", "index.bin", "--context", "100"})["documents"].size(), 6u);
}

// A document of which nothing is asked is left out; an answer of one token is right or wrong.
TEST_F(Eval, CountsWhatTheMaskLeaves) {
  std::vector<std::uint8_t> mask(500, 0);
  mask[150] = mask[499] = 1;
  run_.files().write("mask.bin", mask);
  const Json masked = json({"--document-index", "index.bin", "--loss-mask", "mask.bin"});
  EXPECT_EQ(masked["targets"], 2);
  EXPECT_EQ(masked["documents"].size(), 2u);
  EXPECT_EQ(masked["by_position"].size(), 1u);
  EXPECT_EQ(masked["by_position"][0]["from"], 128);
}

TEST_F(Eval, PrintsATable) {
  Strings words = {"eval", "--model", "model", "--tokens", "tokens.bin", "--page", "16"};
  EXPECT_TRUE(ended(run_.run(words), 0));
  EXPECT_NE(run_.run(words).out.find("499 targets in 1 documents"), std::string::npos);
}

TEST_F(Eval, RefusesWhatItCannotDo) {
  EXPECT_TRUE(refused(eval({"--context", "1"}), {"--context is 1", "at least 2"}));
  EXPECT_TRUE(refused(run_.run({"eval", "--model", "model", "--tokens", "tokens.bin", "--page",
                                "16", "--chunk", "40"}),
                      {"chunk of 40", "multiple of 16"}));
  EXPECT_TRUE(ended(eval({"--documents", "0"}), 2, {"--documents"}));
  run_.files().write("nothing.bin", std::vector<std::uint8_t>(500, 0));
  EXPECT_TRUE(refused(eval({"--loss-mask", "nothing.bin"}), {"hold nothing to learn"}));
  run_.write_tokens("tokens.bin", 500, 1000);
  EXPECT_TRUE(refused(eval({}), {"tokens.bin", "320"}));
}

}  // namespace
}  // namespace longstride
