// longstride plan --ranks and train --dry-run --ranks where ranks may share heads.
#include <gtest/gtest.h>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

// One layer, so that a pipeline is of no use, and sequences whose attention takes long.
constexpr const char* kOneLayerRun = R"(
[model]
path = "one-layer"
[data]
path = "long.bin"
[training]
context = 8192
chunk = 1024
page = 64
steps = 2
[device]
name = "cpu"
[checkpoint]
directory = "out"
)";

class PlanHeads : public ::testing::Test {
 protected:
  PlanHeads() {
    run_.write_model("one-layer", changed_preset("tiny-llama", {{"num_hidden_layers", 1},
                                                                {"hidden_size", 128},
                                                                {"num_attention_heads", 8},
                                                                {"num_key_value_heads", 4},
                                                                {"head_dim", 32}}));
    run_.files().write_text("long.toml", kOneLayerRun);
    run_.write_tokens("long.bin", 2 * 8192 + 1);
  }

  ProgramResult plan(const std::vector<std::string>& more, const char* file = "long.toml") const {
    std::vector<std::string> words = {"plan", file};
    words.insert(words.end(), more.begin(), more.end());
    return run_.run(words);
  }
  Json json(std::vector<std::string> more, const char* file = "long.toml") const {
    more.emplace_back("--json");
    const ProgramResult result = plan(more, file);
    EXPECT_TRUE(ended(result, 0));
    return parse_json(result.out, "stdout")["plans"][0];
  }

  RunDirectory run_;
};

std::int64_t first_stage_bytes(const Json& plan, const char* what) {
  return plan["stages"][0]["bytes"][what].get<std::int64_t>();
}

TEST_F(PlanHeads, AFastLinkChoosesThem) {
  const Json four = json({"--ranks", "4", "--link-rate", "1000G"});
  EXPECT_EQ(four["pipeline"], 1);
  EXPECT_EQ(four["data"], 1);
  EXPECT_EQ(four["heads"], 4);
  EXPECT_EQ(four["command"],
            "mpirun -np 4 --bind-to none longstride train long.toml --parallel.pipeline=1 "
            "--parallel.data=1 --parallel.heads=4");
  // One rank and two are the other ways, and slower.
  ASSERT_EQ(four["others"].size(), 2u);
  EXPECT_EQ(four["others"][0]["heads"], 2);
  EXPECT_EQ(four["others"][1]["heads"], 1);
  EXPECT_LT(four["seconds"]["total"], four["others"][0]["seconds"]);
  EXPECT_LT(four["others"][0]["seconds"], four["others"][1]["seconds"]);
  // Pages are divided; weights and gradients are not, but for what sums need.
  const Json one = json({"--ranks", "1"});
  EXPECT_EQ(one["command"], "");
  EXPECT_EQ(4 * first_stage_bytes(four, "kv_pages"), first_stage_bytes(one, "kv_pages"));
  EXPECT_EQ(4 * first_stage_bytes(four, "kv_gradient_pages"),
            first_stage_bytes(one, "kv_gradient_pages"));
  EXPECT_EQ(first_stage_bytes(four, "weights"), first_stage_bytes(one, "weights"));
  EXPECT_GE(first_stage_bytes(four, "gradients"), first_stage_bytes(one, "gradients"));
  EXPECT_LT(first_stage_bytes(four, "optimizer"), first_stage_bytes(one, "optimizer"));
}

TEST_F(PlanHeads, ASlowLinkDoesNot) {
  const Json plan = json({"--ranks", "4", "--link-rate", "1M"});
  EXPECT_EQ(plan["heads"], 1);
  EXPECT_EQ(plan["ranks_used"], 1);
  EXPECT_EQ(plan["others"].size(), 2u);
}

TEST_F(PlanHeads, SettingsHold) {
  const Json two = json({"--ranks", "4", "--link-rate", "1M", "--parallel.heads=2"});
  EXPECT_EQ(two["heads"], 2);
  EXPECT_EQ(two["ranks_used"], 2);
  EXPECT_TRUE(two["others"].empty());
  // Forward: q, k, v, outputs. Backward: q, outputs, their gradient, dq, dk, dv. What is recomputed
  // is sent again. (h - 1) / h^2 of the elements of all tokens.
  const double all = two["stages"][0]["sequence_bytes_exchanged"].get<double>(),
               once = (6.0 * 8 + 4 * 4) * 32 * 8192 / 4 * 4;
  EXPECT_GE(all, once * (1 - 1e-9));
  EXPECT_LE(all, once + 2.0 * 8 * 32 * 8192 / 4 * 4 * (1 + 1e-9));
  // At a million bytes a second, and 20 us for each of a chunk's ten tensors or more.
  const Json& seconds = two["stages"][0]["sequence_seconds"];
  EXPECT_GE(seconds["exchange"].get<double>(), all / (1 << 20) + 8 * 10 * 20e-6 - 1e-9);
  EXPECT_LE(seconds["exchange"].get<double>(), all / 1e6 + 8 * 12 * 20e-6 + 1e-9);
  EXPECT_NEAR(two["stages"][0]["seconds"].get<double>(),
              seconds["forward"].get<double>() + seconds["recompute"].get<double>() +
                  seconds["backward"].get<double>(),
              1e-9);
  // Half of the gradients and weights goes to the other rank.
  EXPECT_EQ(two["exchange_bytes"], first_stage_bytes(json({"--ranks", "1"}), "weights") / 2 * 2);

  const Json stages =
      json({"--ranks", "4", "--parallel.pipeline=2", "--link-rate", "1000G"}, "run.toml");
  EXPECT_EQ(stages["pipeline"], 2);
  for (const Json& other : stages["others"]) EXPECT_EQ(other["pipeline"], 2);
}

TEST_F(PlanHeads, TablesAndPictures) {
  const ProgramResult text =
      plan({"--ranks", "4", "--link-rate", "1000G", "--svg", "heads.svg", "--html", "heads.html"});
  EXPECT_TRUE(ended(text, 0));
  for (const char* word :
       {"batch 1: pipeline 1, data 1, heads 4\n", "pipeline  data  heads  ranks  seconds",
        "to run it: mpirun -np 4 ", " --parallel.heads=4\n", "exchanged",
        "of gradients and weights between ranks of a stage"})
    EXPECT_NE(text.out.find(word), std::string::npos) << word << "\n" << text.out;
  const std::string svg = run_.read("heads.svg"), page = run_.read("heads.html");
  for (const char* word : {"8K tokens, one stage of 4 ranks", "4 ranks that share heads"}) {
    EXPECT_NE(svg.find(word), std::string::npos) << word;
    EXPECT_NE(page.find(word), std::string::npos) << word;
  }
  EXPECT_NE(page.find(">heads<"), std::string::npos);
}

TEST_F(PlanHeads, WhatCannotBeIsRefused) {
  const auto refuses = [&](const std::vector<std::string>& more, const std::string& why) {
    std::vector<std::string> dry = {"train", "long.toml", "--dry-run"};
    dry.insert(dry.end(), more.begin(), more.end());
    for (const ProgramResult& result : {plan(more), run_.run(dry)}) {
      EXPECT_EQ(result.status, 2);
      EXPECT_TRUE(refused(result, {why}));
    }
  };
  refuses({"--ranks", "6", "--parallel.heads=3"},
          "parallel.heads is 3 and the model has 4 KV heads");
  refuses({"--ranks", "2", "--parallel.heads=4"},
          "parallel.pipeline = 1 and parallel.heads = 4 take 4 ranks, and the plan is for 2");
  refuses({"--ranks", "4", "--parallel.pipeline=2"},
          "parallel.pipeline is 2 and the model has 1 layers");
}

TEST_F(PlanHeads, DryRunsShowThem) {
  const ProgramResult result =
      run_.run({"train", "long.toml", "--dry-run", "--ranks", "2", "--parallel.heads=2"});
  EXPECT_TRUE(ended(result, 0,
                    {"pipeline 1, data 1, heads 2", "longstride train long.toml",
                     "everything checks out, nothing was written"}));
}

// Layers that a pipeline of so many stages cannot divide evenly: fewer stages with shared heads
// wait less.
TEST_F(PlanHeads, FillPipelinesThatWouldWait) {
  const std::vector<std::string> words = {
      "plan",    "--preset", "qwen2.5-7b", "--machine", "h200",        "--context", "256K",
      "--chunk", "4096",     "--ranks",    "8",         "--link-rate", "300G",      "--json"};
  const ProgramResult result = run_.run(words);
  if (result.text().find("this build has no CUDA") != std::string::npos)
    GTEST_SKIP() << "built without CUDA";
  ASSERT_TRUE(ended(result, 0));
  const Json plan = parse_json(result.out, "stdout")["plans"][0];
  EXPECT_GT(plan["heads"], 1);
  EXPECT_EQ(plan["ranks_used"], 8);
  const double chosen = plan["seconds"]["total"];
  bool without = false;
  for (const Json& other : plan["others"]) {
    EXPECT_LE(chosen, 1.005 * other["seconds"].get<double>());
    without = without || (other["heads"] == 1 && other["pipeline"] == 8);
  }
  EXPECT_TRUE(without) << plan["others"].dump();
}

}  // namespace
}  // namespace longstride
