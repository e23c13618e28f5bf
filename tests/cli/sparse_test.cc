// Sparse attention from the command line: what it writes, and what it refuses.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

class SparseCommands : public ::testing::Test {
 protected:
  SparseCommands() {
    run_.write_model("model", find_preset("tiny-qwen2"));
    run_.write_tokens("tokens.bin", 300);
  }
  ProgramResult gradients(const Strings& more) const {
    Strings words = {"gradients", "--model", "model",   "--tokens", "tokens.bin",
                     "--page",    "16",      "--chunk", "64"};
    words.insert(words.end(), more.begin(), more.end());
    return run_.run(words);
  }
  const RunDirectory run_;
};

TEST_F(SparseCommands, ListsHaveForcedPagesAndEnds) {
  ASSERT_TRUE(ended(gradients({"--attention", "sparse", "--budget", "4", "--lists", "lists.st",
                               "--picture", "pages.svg"}),
                    0));
  const SafetensorsReader file = SafetensorsReader::open_file(run_.path("lists.st"));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"layers.0", "layers.1"}));
  const std::span<const std::byte> bytes = file.bytes("layers.1");
  constexpr std::int64_t kPages = 19, kWidth = 4 + 3;
  ASSERT_EQ(bytes.size(), kPages * kWidth * sizeof(std::int32_t));
  std::vector<std::int32_t> lists(kPages * kWidth);
  std::memcpy(lists.data(), bytes.data(), bytes.size());
  for (std::int64_t q = 0; q < kPages; ++q) {
    const auto begin = lists.begin() + q * kWidth;
    const auto end = std::find(begin, begin + kWidth, -1);
    const std::int32_t earlier = static_cast<std::int32_t>(q / 4 * 4);
    EXPECT_EQ(end - begin, std::min(earlier, 4)) << q;
    EXPECT_TRUE(std::is_sorted(begin, end));
    EXPECT_TRUE(std::all_of(end, begin + kWidth, [](std::int32_t page) { return page == -1; }));
    if (earlier == 0) continue;
    for (const std::int32_t forced : {0, earlier - 2, earlier - 1})
      EXPECT_NE(std::find(begin, end, forced), end) << "query page " << q << " page " << forced;
  }
  const std::string picture = run_.read("pages.svg");
  EXPECT_TRUE(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
  for (const char* words : {"layer 0, budget 4", "layer 1, budget 4", "300 tokens"})
    EXPECT_NE(picture.find(words), std::string::npos) << words;
}

TEST_F(SparseCommands, DenseBesideItIsTheSameWhereAllPagesFit) {
  const ProgramResult all =
      gradients({"--attention", "sparse", "--budget", "100", "--compare-dense"});
  ASSERT_TRUE(ended(all, 0));
  const Json json = Json::parse(all.out);
  EXPECT_NEAR(json["dense"]["loss"].get<double>(), json["loss"].get<double>(), 1e-5);
  for (const auto& [group, figures] : json["dense"]["groups"].items()) {
    EXPECT_LT(figures["relative_error"].get<double>(), 1e-4) << group;
    EXPECT_GT(figures["cosine"].get<double>(), 0.999999) << group;
  }
  const Json few =
      Json::parse(gradients({"--attention", "sparse", "--budget", "3", "--compare-dense"}).out);
  EXPECT_LT(few["dense"]["groups"]["q_proj"]["cosine"].get<double>(), 0.9999);
}

TEST_F(SparseCommands, WidePagesBesideThoseIn8Bits) {
  const auto compared = [&](Strings how) {
    how.insert(how.end(), {"--attention", "sparse", "--budget", "4", "--compare-wide"});
    return Json::parse(gradients(how).out);
  };
  const Json keys = compared({"--kv-dtype", "int8"}),
             sums = compared({"--attention-kv-gradient-dtype", "int8", "--hot-pages", "0"});
  EXPECT_NE(keys["loss"], keys["wide"]["loss"]);
  EXPECT_NEAR(keys["loss"].get<double>(), keys["wide"]["loss"].get<double>(), 1e-2);
  EXPECT_GT(keys["wide"]["same_pages"].get<double>(), 0.8);
  EXPECT_EQ(sums["loss"], sums["wide"]["loss"]);
  EXPECT_EQ(sums["wide"]["same_pages"], 1.0);
  for (const Json& json : {keys, sums}) {
    const double error = json["wide"]["groups"]["k_proj"]["relative_error"].get<double>();
    EXPECT_GT(error, 1e-5);
    EXPECT_LT(error, 0.2);
  }
  EXPECT_TRUE(refused(gradients({"--compare-wide"}), {"--compare-wide", "--kv-dtype int8"}));
  EXPECT_TRUE(refused(gradients({"--attention-kv-dtype", "int9"}),
                      {"attention.kv_dtype", "--attention-kv-dtype", "int9", "fp8 or int8"}));
}

TEST_F(SparseCommands, ContradictionsAreRefused) {
  const auto sparse = [&](Strings more) {
    more.insert(more.begin(), {"--attention", "sparse"});
    return gradients(more);
  };
  EXPECT_TRUE(refused(sparse({"--budget", "2"}),
                      {"--budget is 2, and 3 pages are forced", "--sinks 1 and --recent 2"}));
  EXPECT_TRUE(refused(sparse({"--budget", "9", "--union", "8"}), {"--union is 8", "--budget 9"}));
  EXPECT_TRUE(refused(sparse({"--union", "70000"}), {"--union is 70000", "at most 65535"}));
  EXPECT_TRUE(refused(sparse({"--summary-tokens", "12"}),
                      {"--summary-tokens is 12", "a page has 16 tokens", "divisor"}));
  EXPECT_TRUE(refused(sparse({"--summary", "outliers", "--summary-tokens", "16"}),
                      {"--summary is outliers", "--summary-tokens is the page", "8 or less"}));
  EXPECT_TRUE(refused(run_.run({"gradients", "--model", "model", "--tokens", "tokens.bin",
                                "--attention", "sparse", "--page", "24", "--chunk", "48"}),
                      {"pages of 24 tokens", "a multiple of 16"}));
  EXPECT_TRUE(refused(gradients({"--attention-layers", "sparse*3,dense"}),
                      {"[sparse*3, dense] has 4 layers and the model 2", "sparse*24"}));
  for (const char* bad : {"sprase", "sparse(", "sparse(x)", "window", "window(0)", "dense(3)",
                          "sparse*0", "sparse*", "*2"})
    EXPECT_TRUE(refused(gradients({"--attention-layers", bad}),
                        {"--attention-layers has '", "window(1024)"}))
        << bad;
  EXPECT_TRUE(
      refused(gradients({"--budget", "9"}), {"without sparse layers", "--attention sparse"}));
  EXPECT_TRUE(refused(sparse({"--lists", "a.st", "--losses", "./a.st"}),
                      {"--losses and --lists are both", "name two files"}));
  EXPECT_TRUE(refused(gradients({"--lists", "lists.st"}), {"--lists without sparse layers"}));
  EXPECT_TRUE(refused(gradients({"--picture", "p.svg"}), {"--picture without sparse layers"}));
  EXPECT_FALSE(std::filesystem::exists(run_.path("lists.st")));
  std::ofstream(run_.path("mine.svg")) << "<svg>mine</svg>";
  EXPECT_TRUE(refused(sparse({"--picture", "mine.svg"}), {"mine.svg"}));
  EXPECT_EQ(run_.read("mine.svg"), "<svg>mine</svg>");
}

// Stopped and resumed, with pages on the host: the same bytes as in one go.
TEST(SparseRuns, ResumeGivesTheSameBytes) {
  const Strings sparse = {"--attention.kind=sparse", "--attention.budget=4",
                          "--attention.union_pages=6"};
  const auto with = [&](Strings more) {
    more.insert(more.end(), sparse.begin(), sparse.end());
    return more;
  };
  const RunDirectory whole, parts;
  ASSERT_TRUE(ended(whole.train(with({"--training.steps=4"})), 0));
  ASSERT_TRUE(ended(parts.train(with({"--training.steps=2"})), 0));
  EXPECT_TRUE(refused(parts.train({"--resume", "--training.steps=4"}), {"attention.kind"}));
  EXPECT_TRUE(refused(parts.train(with({"--resume", "--training.steps=4", "--attention.recent=1"})),
                      {"attention.recent is 1", "made with 2"}));
  ASSERT_TRUE(ended(parts.train(with({"--resume", "--training.steps=4"})), 0));
  EXPECT_TRUE(same_files(whole.contents("out/step-4"), parts.contents("out/step-4")));
}

}  // namespace
}  // namespace longstride
