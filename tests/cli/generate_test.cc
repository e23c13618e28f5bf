// longstride generate: token ids on stdout.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;
using Tokens = std::vector<std::int32_t>;

const std::filesystem::path kParity = source_directory() / "tests" / "parity";

class Generate : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy(kParity / "fixtures" / "qwen3", run_.path("model"));
    const Json expected = read_json(kParity / "generated.json").at("fixtures").at("qwen3");
    expected_ = expected.at("tokens").get<Tokens>();
    const std::string all = run_.read("model/tokens.bin");
    run_.files().write_text("prompt.bin",
                            all.substr(0, 4 * expected.at("prompt").get<std::size_t>()));
  }
  // Pages of 16 and chunks of 32, unless `more` says otherwise.
  ProgramResult generate(const Strings& more, const std::string& count = "60") const {
    Strings words = {"generate", "--model", "model",    "--tokens", "prompt.bin",
                     "--count",  count,     "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    for (const char* option : {"--page", "--chunk"})
      if (std::ranges::find(more, option) == more.end()) {
        words.emplace_back(option);
        words.emplace_back(std::string(option) == "--page" ? "16" : "32");
      }
    return run_.run(words);
  }
  Tokens tokens(const Strings& more, const std::string& count = "60") const {
    const ProgramResult result = generate(more, count);
    EXPECT_EQ(result.status, 0) << result.text();
    std::istringstream in(result.out);
    return {std::istream_iterator<std::int32_t>(in), {}};
  }
  Tokens first(std::size_t count) const {
    return {expected_.begin(), expected_.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  const RunDirectory run_;
  Tokens expected_;
};

TEST_F(Generate, PrintsWhatTransformersGenerates) {
  EXPECT_EQ(tokens({}), first(60));
  EXPECT_EQ(tokens({"--page", "128", "--chunk", "1024"}, "1"), first(1));
  const Json json = parse_json(generate({"--json"}).out, "generate");
  EXPECT_EQ(json.at("tokens").get<Tokens>(), first(60));
  EXPECT_EQ(json.at("prompt_tokens"), 70);
  EXPECT_EQ(json.at("stopped"), false);
}

TEST_F(Generate, DrawsTheSameTokensEachTime) {
  const Tokens drawn = tokens({"--temperature", "1", "--seed", "5"});
  EXPECT_EQ(drawn.size(), 60u);
  EXPECT_NE(drawn, first(60));
  EXPECT_EQ(tokens({"--temperature", "1", "--seed", "5", "--chunk", "64"}), drawn);
  EXPECT_NE(tokens({"--temperature", "1", "--seed", "6"}), drawn);
  EXPECT_EQ(tokens({"--temperature", "0.00001"}), first(60));
}

TEST_F(Generate, StopsAtTheEndOfText) {
  const auto stop =
      static_cast<std::size_t>(std::ranges::find(expected_, expected_[20]) - expected_.begin());
  Json config = read_json(run_.path("model/config.json"));
  config["eos_token_id"] = expected_[20];
  run_.files().write_text("model/config.json", config.dump());
  EXPECT_EQ(tokens({}), first(stop + 1));
  EXPECT_EQ(tokens({"--ignore-eos"}), first(60));
  EXPECT_EQ(parse_json(generate({"--json"}).out, "generate").at("stopped"), true);
  // The generation config has the last word.
  run_.files().write_text("model/generation_config.json",
                          Json({{"eos_token_id", {expected_[2], 63}}}).dump());
  const auto earlier =
      static_cast<std::size_t>(std::ranges::find(expected_, expected_[2]) - expected_.begin());
  EXPECT_EQ(tokens({}), first(earlier + 1));
  run_.files().write_text("model/generation_config.json", R"({"eos_token_id": "end"})");
  EXPECT_TRUE(ended(generate({}), 2, {"generation_config.json", "eos_token_id", "\"end\""}));
}

TEST_F(Generate, KnowsSparseAttention) {
  // With a budget that covers everything it is dense attention.
  EXPECT_EQ(tokens({"--attention", "sparse", "--budget", "64", "--union", "64"}), first(60));
  EXPECT_EQ(
      tokens({"--attention", "sparse", "--budget", "2", "--sinks", "1", "--recent", "1"}).size(),
      60u);
  EXPECT_TRUE(refused(generate({"--budget", "2"}), {"without sparse layers"}));
}

TEST_F(Generate, RefusesBadInput) {
  EXPECT_TRUE(ended(generate({}, "0"), 2, {"--count"}));
  EXPECT_TRUE(ended(generate({}, "-3"), 2, {"--count"}));
  EXPECT_TRUE(ended(generate({"--temperature", "-1"}), 2, {"--temperature"}));
  EXPECT_TRUE(ended(generate({"--temperature", "nan"}), 2, {"--temperature"}));
  EXPECT_TRUE(refused(generate({"--seed", "3"}), {"--seed has no effect", "greedy"}));
  EXPECT_TRUE(refused(generate({"--chunk", "40"}), {"chunk of 40", "multiple of 16"}));
  EXPECT_TRUE(refused(generate({}, "443"), {"prompt.bin has 70 tokens", "443 more", "512"}));
  EXPECT_EQ(tokens({}, "442").size(), 442u);
  run_.files().write_text("prompt.bin", "");
  EXPECT_TRUE(refused(generate({}), {"prompt.bin"}));
  run_.files().write("prompt.bin", std::vector<std::uint32_t>{1, 2, 64, 3});
  EXPECT_TRUE(refused(generate({}), {"prompt.bin: token 2", "64"}));
  std::filesystem::remove(run_.path("prompt.bin"));
  EXPECT_TRUE(refused(generate({}), {"prompt.bin"}));
}

}  // namespace
}  // namespace longstride
