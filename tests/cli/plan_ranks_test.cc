// longstride plan --ranks and train --dry-run --ranks: stages, bytes, the simulated step and its
// picture, without a launcher.
#include <gtest/gtest.h>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

std::vector<std::string> plan_words(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"plan"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json json_of(const RunDirectory& run, const std::vector<std::string>& more) {
  std::vector<std::string> words = plan_words(more);
  words.emplace_back("--json");
  const ProgramResult result = run.run(words);
  EXPECT_TRUE(ended(result, 0));
  return parse_json(result.out, "stdout");
}

const std::vector<std::string> kSevenStages = {"--preset",  "qwen2.5-7b", "--machine", "h200",
                                               "--context", "64K",        "--chunk",   "4096"};

std::vector<std::string> seven(std::vector<std::string> more) {
  more.insert(more.begin(), kSevenStages.begin(), kSevenStages.end());
  return more;
}

// Whether this build has CUDA: a GPU is planned with its kernels.
bool plans_gpus(const RunDirectory& run) {
  return run.run(plan_words(kSevenStages)).text().find("this build has no CUDA") ==
         std::string::npos;
}

TEST(PlanRanks, StagesShareTheModel) {
  const RunDirectory run;
  if (!plans_gpus(run)) GTEST_SKIP() << "built without CUDA";
  const Json json = json_of(run, seven({"--ranks", "7"}));
  ASSERT_EQ(json["plans"].size(), 1u);
  const Json& plan = json["plans"][0];
  ASSERT_TRUE(plan["fits"].get<bool>()) << plan.dump();
  EXPECT_EQ(plan["pipeline"], 7);
  EXPECT_EQ(plan["data"], 1);
  ASSERT_EQ(plan["stages"].size(), 7u);
  std::int64_t layer = 0, weights = 0;
  double busy = 0;
  for (const Json& stage : plan["stages"]) {
    EXPECT_EQ(stage["first_layer"], layer);
    layer += stage["layers"].get<std::int64_t>();
    weights += stage["bytes"]["weights"].get<std::int64_t>();
    busy += stage["seconds"].get<double>();
    std::int64_t bytes = 0;
    for (const char* tenant : {"weights", "gradients", "optimizer", "kv_pages", "kv_gradient_pages",
                               "page_summaries", "rope", "retained", "workspace", "messages"})
      bytes += stage["bytes"][tenant].get<std::int64_t>();
    EXPECT_EQ(bytes, stage["bytes"]["device"]);
    const Json& s = stage["sequence_seconds"];
    EXPECT_NEAR(
        stage["seconds"].get<double>(),
        s["forward"].get<double>() + s["recompute"].get<double>() + s["backward"].get<double>(),
        1e-9);
  }
  EXPECT_EQ(layer, 28);
  const Json whole = json_of(run, kSevenStages)["plans"][0];
  EXPECT_EQ(weights, whole["bytes"]["weights"]);
  // Activations go forward, gradients come back: tokens x hidden size x bytes, twice.
  EXPECT_EQ(plan["boundary_bytes"],
            Json(std::vector<std::int64_t>(6, std::int64_t{2} * 65536 * 3584 * 2)));
  const double seconds = plan["seconds"]["pipeline"].get<double>();
  EXPECT_NEAR(plan["idle_share"].get<double>(), 1 - busy / (7 * seconds), 1e-9);
  EXPECT_NEAR(
      plan["seconds"]["total"].get<double>(),
      seconds + plan["seconds"]["update"].get<double>() + plan["seconds"]["exchange"].get<double>(),
      1e-9);
  EXPECT_LT(plan["seconds"]["total"].get<double>(), whole["seconds"]["total"].get<double>());
}

// Two layers and a batch of one: a third rank has nothing to do, unless there were a fourth.
TEST(PlanRanks, RanksThatDoNotHelpAreLeftOut) {
  const RunDirectory run;
  const std::vector<std::string> words = {
      "run.toml", "--context", "4K", "--chunk", "512", "--parallel.pipeline=2", "--ranks", "3"};
  const Json plan = json_of(run, words)["plans"][0];
  EXPECT_EQ(plan["pipeline"], 2);
  EXPECT_EQ(plan["ranks"], 3);
  const ProgramResult text = run.run(plan_words(words));
  EXPECT_TRUE(ended(text, 0));
  for (const char* word :
       {"4K tokens in chunks of 512, batch 1: pipeline 2, data 1, heads 1: 2 ranks, more of the 3 "
        "do not fit or are not faster",
        "predicted: ", " idle", "sent on", "0-0", "1-1", "GiB:", "page gradients"})
    EXPECT_NE(text.out.find(word), std::string::npos) << word << "\n" << text.out;
}

TEST(PlanRanks, OneRankIsTheWholeModel) {
  const RunDirectory run;
  const std::vector<std::string> words = {"--preset", "tiny-llama", "--context", "4K",
                                          "--chunk",  "512",        "--device",  "cpu"};
  std::vector<std::string> ranks = words;
  ranks.insert(ranks.end(), {"--ranks", "1"});
  const Json one = json_of(run, ranks)["plans"][0], plain = json_of(run, words)["plans"][0];
  EXPECT_EQ(one["stages"].size(), 1u);
  EXPECT_NEAR(one["idle_share"].get<double>(), 0, 1e-12);
  EXPECT_EQ(one["stages"][0]["bytes"]["weights"], plain["bytes"]["weights"]);
  EXPECT_NEAR(one["seconds"]["total"].get<double>(), plain["seconds"]["total"].get<double>(),
              1e-6 * plain["seconds"]["total"].get<double>());
}

TEST(PlanRanks, AFasterLinkIsFaster) {
  const RunDirectory run;
  if (!plans_gpus(run)) GTEST_SKIP() << "built without CUDA";
  const double slow = json_of(run, seven({"--ranks", "7", "--link-rate",
                                          "1G"}))["plans"][0]["seconds"]["pipeline"],
               fast = json_of(run, seven({"--ranks", "7", "--link-rate",
                                          "300G"}))["plans"][0]["seconds"]["pipeline"];
  EXPECT_LT(fast, slow);
}

// A batch of 4 on 4 ranks without stages: each has a part of the optimizer's state.
TEST(PlanRanks, DataGroupsDivideTheBatch) {
  const RunDirectory run;
  const std::vector<std::string> words = {"run.toml", "--training.batch=4", "--training.chunk=256",
                                          "--ranks"};
  const auto with = [&](const char* ranks, std::vector<std::string> more = {}) {
    std::vector<std::string> all = words;
    all.emplace_back(ranks);
    all.insert(all.end(), more.begin(), more.end());
    return json_of(run, all)["plans"][0];
  };
  // One chunk: a pipeline would only wait.
  const Json four = with("4", {"--link-rate", "1000G"});
  EXPECT_EQ(four["data"], 4);
  EXPECT_EQ(four["pipeline"], 1);
  const Json one = with("1");
  const auto bytes = [](const Json& plan, const char* what) {
    return plan["stages"][0]["bytes"][what].get<std::int64_t>();
  };
  EXPECT_EQ(bytes(four, "weights"), bytes(one, "weights"));
  // The largest part: tensors of less than a million elements are not cut.
  EXPECT_GE(4 * bytes(four, "optimizer"), bytes(one, "optimizer"));
  EXPECT_LT(bytes(four, "optimizer"), bytes(one, "optimizer") / 2);
  // Three quarters of the gradients, which are sent, and of the weights, which come back.
  EXPECT_EQ(four["exchange_bytes"], 3 * ((bytes(one, "weights") + bytes(one, "gradients")) / 4));
  // The others are slower, and no group is left without a sequence.
  // Two stages, alone or in two groups or with shared heads; two groups with shared heads.
  EXPECT_EQ(four["others"].size(), 4u);
  for (const Json& other : four["others"]) {
    EXPECT_LT(other["data"], 4);
    EXPECT_GT(other["seconds"].get<double>(), four["seconds"]["total"].get<double>());
  }
  // What the configuration says holds.
  EXPECT_EQ(with("4", {"--link-rate", "1000G", "--parallel.data=2"})["data"], 2);
  // Of 3 ranks, 2 divide the batch of 4.
  EXPECT_NE(with("3")["data"], 3);
}

TEST(PlanRanks, Pictures) {
  const RunDirectory run;
  if (!plans_gpus(run)) GTEST_SKIP() << "built without CUDA";
  const ProgramResult result =
      run.run(plan_words(seven({"--ranks", "7", "--svg", "schedule.svg", "--html", "page.html"})));
  ASSERT_TRUE(ended(result, 0));
  const std::string svg = run.read("schedule.svg"), page = run.read("page.html");
  for (const char* text : {"longstride-pipeline", "qwen2.5-7b, 64K tokens, 7 stages",
                           "layers 24 to 27", ">recompute<", ">waiting<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  // A picture of another kind is not overwritten.
  EXPECT_TRUE(refused(run.run(plan_words({"--preset", "tiny-llama", "--context", "4K", "--device",
                                          "cpu", "--svg", "schedule.svg"})),
                      {"--svg", "schedule.svg"}));
}

// The chunk that suits one GPU leaves most of eight stages idle.
TEST(PlanRanks, AnAutomaticChunkSuitsThePipeline) {
  const RunDirectory run;
  if (!plans_gpus(run)) GTEST_SKIP() << "built without CUDA";
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"--preset", "qwen2.5-7b", "--machine",
                                      "h200",     "--ranks",    "8"};
    if (more.empty() || more.front() != "--context")
      words.insert(words.end(), {"--context", "64K"});
    words.insert(words.end(), more.begin(), more.end());
    return json_of(run, words)["plans"][0];
  };
  const Json chosen = plan({});
  const std::int64_t chunk = chosen["chunk"];
  EXPECT_NE(chosen["command"].get<std::string>().find(fmt::format("--training.chunk={}", chunk)),
            std::string::npos)
      << chosen["command"];
  // The whole of a short context is one chunk, of any length.
  EXPECT_LT(plan({"--context", "12000"})["chunk"], 12000);
  const double seconds = chosen["seconds"]["total"];
  for (const std::int64_t other : {2 * chunk, 4 * chunk}) {
    const Json set = plan({"--chunk", std::to_string(other)});
    EXPECT_EQ(set["chunk"], other);
    EXPECT_EQ(set["command"].get<std::string>().find("--training.chunk"), std::string::npos);
    EXPECT_GT(set["seconds"]["total"].get<double>(), seconds) << other;
  }
}

TEST(PlanRanks, WhatDoesNotFitSaysWhy) {
  const RunDirectory run;
  if (!plans_gpus(run)) GTEST_SKIP() << "built without CUDA";
  const std::vector<std::string> words = {"--preset",  "qwen2.5-32b", "--machine",     "h200",
                                          "--context", "16K",         "--chunk",       "4096",
                                          "--ranks",   "2",           "--host-memory", "0"};
  const ProgramResult text = run.run(plan_words(words));
  EXPECT_TRUE(ended(text, 0));
  EXPECT_NE(text.out.find("16K tokens do not fit on 2 ranks. Of 2 stages: this run needs"),
            std::string::npos)
      << text.out;
  const Json plan = json_of(run, words)["plans"][0];
  EXPECT_FALSE(plan["fits"].get<bool>());
  EXPECT_NE(plan["hint"], "");
  std::vector<std::string> picture = words;
  picture.insert(picture.end(), {"--svg", "none.svg"});
  EXPECT_TRUE(refused(run.run(plan_words(picture)), {"none of the contexts fits"}));
}

TEST(PlanRanks, WhatMakesNoSense) {
  const RunDirectory run;
  EXPECT_TRUE(refused(run.run(plan_words(seven({"--link-rate", "1G"}))), {"without --ranks"}));
  EXPECT_TRUE(refused(run.run(plan_words(seven({"--ranks", "2", "--out", "p.json"}))),
                      {"--out with --ranks"}));
  EXPECT_TRUE(refused(run.run(plan_words(seven({"--ranks", "2", "--longest"}))), {"--longest"}));
  EXPECT_TRUE(
      refused(run.run(plan_words(seven({"--ranks", "2", "--link-rate", "0"}))), {"--link-rate 0"}));
  EXPECT_NE(run.run(plan_words(seven({"--ranks", "0"}))).status, 0);
  EXPECT_NE(run.train({"--ranks", "2"}).status, 0);
}

TEST(TrainDryRun, OnRanks) {
  const RunDirectory run;
  EXPECT_TRUE(ended(run.train({"--dry-run", "--ranks", "2", "--parallel.pipeline=2"}), 0,
                    {"256 tokens in chunks of 64, batch 1: pipeline 2, data 1, heads 1",
                     "predicted:", "everything checks out, nothing was written"}));
  EXPECT_TRUE(ended(run.train({"--dry-run", "--ranks", "2", "--svg", "dry.svg"}), 0));
  EXPECT_TRUE(run.read("dry.svg").starts_with("<svg"));
  EXPECT_NE(run.train({"--dry-run", "--svg", "dry.svg"}).status, 0);
  // The command has the settings of the command line, in quotes where they need them.
  EXPECT_TRUE(ended(run.train({"--dry-run", "--ranks", "2", "--training.batch=4",
                               "--model.freeze=[\"model.norm.*\", \"lm_head.*\"]"}),
                    0,
                    {" --training.batch=4 '--model.freeze=[\"model.norm.*\", \"lm_head.*\"]' "
                     "--parallel.pipeline="}));
  EXPECT_TRUE(refused(run.train({"--dry-run", "--ranks", "2", "--data.path=nowhere.bin"}),
                      {"nowhere.bin"}));
  EXPECT_TRUE(
      refused(run.train({"--dry-run", "--ranks", "2", "--memory.gpu=100K"}), {"this run needs"}));
}

}  // namespace
}  // namespace longstride
