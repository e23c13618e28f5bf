// longstride bench: results with stable keys.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

ProgramResult bench_step(const RunDirectory& run, const Strings& more) {
  Strings words = {"bench", "step", "--preset", "tiny-llama", "--chunk", "64", "--page", "16"};
  words.insert(words.end(), more.begin(), more.end());
  return run.run(words);
}

void expect_keys(const Json& json, const Strings& keys) {
  for (const std::string& key : keys) EXPECT_TRUE(json.contains(key)) << key;
}

TEST(BenchStep, Figures) {
  const ProgramResult result = bench_step(RunDirectory(), {"--context", "1K"});
  ASSERT_TRUE(ended(result, 0, {"1024 tokens", "tokens/s", "planned"}));
  const Json json = Json::parse(result.out);
  expect_keys(json, {"preset", "context", "chunk", "page", "attention", "window", "layers",
                     "device", "threads", "repeat", "loss", "tokens_per_s", "model_tflops",
                     "seconds", "memory", "numerics"});
  expect_keys(json["seconds"], {"total", "forward", "recompute", "backward"});
  expect_keys(json["memory"], {"weights", "gradients", "kv_pages", "kv_gradient_pages", "workspace",
                               "workspace_bound", "caching_allocator_workspace", "kv_pages_peak",
                               "kv_gradient_pages_peak", "planned_step_bytes", "baseline_rss",
                               "peak_rss", "peak_rss_is_of_the_step", "step_bytes"});
  EXPECT_EQ(json["context"], 1024);
  EXPECT_EQ(json["window"], 0);
  EXPECT_TRUE(json.at("model_flop_utilization").is_null());  // the peak of a CPU is unknown
  // 2 layers, 1024 tokens, keys and values of 2 heads of 16 floats.
  EXPECT_EQ(json["memory"]["kv_pages"], 2 * 1024 * 2 * 2 * 16 * 4);
  EXPECT_GT(json["tokens_per_s"].get<double>(), 0);
}

TEST(BenchStep, PackedDocuments) {
  const RunDirectory run;
  const auto figures = [&](const Strings& more) {
    Strings words = {"--context", "1000"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = bench_step(run, words);
    EXPECT_TRUE(ended(result, 0));
    return Json::parse(result.out);
  };
  const auto flop = [](const Json& json) {
    return json["model_tflops"].get<double>() * json["seconds"]["total"].get<double>();
  };
  const Json one = figures({}), many = figures({"--document", "300"}),
             tiered = figures({"--document", "300", "--page-memory", "least"});
  EXPECT_EQ(one["documents"], 1);
  EXPECT_EQ(many["documents"], 4);
  EXPECT_LT(flop(many), flop(one));
  EXPECT_EQ(tiered["loss"], many["loss"]);
  EXPECT_GT(many["seconds"]["cpu_of_issuing_thread"].get<double>(), 0);
  EXPECT_TRUE(ended(bench_step(run, {"--context", "1000", "--document", "1"}), 2,
                    {"--document is 1", "at least 2"}));
}

TEST(BenchStep, ActivationsThatStayChangeNoBit) {
  const RunDirectory run;
  const auto figures = [&](const char* plan) {
    const ProgramResult result = bench_step(run, {"--context", "1K", "--plan", plan});
    EXPECT_TRUE(ended(result, 0)) << result.err;
    return Json::parse(result.out);
  };
  const Json recomputed = figures("recompute"), planned = figures("auto");
  EXPECT_EQ(recomputed["memory"]["retained"], 0);
  EXPECT_GT(planned["memory"]["retained"], 0);
  EXPECT_EQ(planned["loss"], recomputed["loss"]);
  EXPECT_EQ(planned["memory"]["planned_step_bytes"].get<std::int64_t>() -
                planned["memory"]["retained"].get<std::int64_t>(),
            recomputed["memory"]["planned_step_bytes"].get<std::int64_t>() +
                planned["memory"]["workspace"].get<std::int64_t>() -
                recomputed["memory"]["workspace"].get<std::int64_t>());
}

TEST(BenchStep, ActivationMemoryNeedsAPlan) {
  const RunDirectory run;
  EXPECT_TRUE(refused(bench_step(run, {"--context", "1K", "--activation-memory", "1GiB"}),
                      {"--activation-memory without --plan auto"}));
  EXPECT_TRUE(refused(bench_step(run, {"--context", "1K", "--plan", "auto", "--page-memory",
                                       "least", "--activation-memory", "1GiB"}),
                      {"both --activation-memory and --page-memory"}));
}

// Each stage has its part of weights and pages, and together they have all.
TEST(BenchStep, StagesAlone) {
  const RunDirectory run;
  const auto figures = [&](const Strings& more) {
    Strings words = {"--context", "500"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = bench_step(run, words);
    EXPECT_TRUE(ended(result, 0)) << result.err;
    return Json::parse(result.out);
  };
  EXPECT_TRUE(ended(bench_step(run, {"--context", "500", "--stages", "2", "--stage", "1"}), 0,
                    {"stage 1 of 2 (layers 1 to 1)"}));
  EXPECT_TRUE(ended(bench_step(run, {"--context", "500", "--stages", "2", "--svg", "s.svg"}), 0));
  EXPECT_NE(run.read("s.svg").find("stage 1"), std::string::npos);
  EXPECT_TRUE(refused(bench_step(run, {"--context", "500", "--svg", "s.svg"}), {"--stages"}));
  const Json whole = figures({}), first = figures({"--stages", "2"}),
             last = figures({"--stages", "2", "--stage", "1"}),
             planned = figures({"--stages", "2", "--stage", "1", "--plan", "auto"});
  const auto bytes = [](const Json& json, const char* what) {
    return json["memory"][what].get<std::int64_t>();
  };
  for (const char* what : {"weights", "gradients", "kv_pages"})
    EXPECT_EQ(bytes(first, what) + bytes(last, what), bytes(whole, what)) << what;
  EXPECT_TRUE(first["loss"].is_null());
  EXPECT_TRUE(last["loss"].is_number());
  EXPECT_EQ(last["first_layer"], 1);
  // The inputs of all chunks but the last stay: 448 tokens.
  EXPECT_EQ(bytes(first, "retained"), 0);
  EXPECT_EQ(bytes(last, "retained"), 7 * 64 * 64 * 4);
  EXPECT_EQ(planned["loss"], last["loss"]);
  EXPECT_TRUE(whole["simulated_seconds"].is_null());
  for (const Json* stage : {&first, &last, &planned}) {
    const Json& seconds = (*stage)["seconds"];
    const double busy = seconds["forward"].get<double>() + seconds["recompute"].get<double>() +
                        seconds["backward"].get<double>(),
                 simulated = (*stage)["simulated_seconds"].get<double>();
    EXPECT_LE(busy, seconds["total"].get<double>());
    EXPECT_GT(simulated, busy);
    EXPECT_NEAR((*stage)["simulated_idle_share"].get<double>(), 1 - busy / simulated, 1e-6);
  }
  // 8 chunks, there and back; the last chunk is shorter.
  const Json slow = figures({"--stages", "2", "--link-rate", "16K"});
  EXPECT_EQ(slow["link_bytes_per_s"], 16 << 10);
  EXPECT_GT(slow["simulated_seconds"].get<double>(), 2 * 500 * 64 * 4 / 16384.0);
  EXPECT_LT(first["simulated_seconds"].get<double>(), 2 * 500 * 64 * 4 / 16384.0);
}

TEST(BenchStep, StagesThatDoNotExist) {
  const RunDirectory run;
  EXPECT_TRUE(ended(bench_step(run, {"--context", "100", "--stages", "3"}), 2,
                    {"--stages is 3, but there are 2 layers"}));
  EXPECT_TRUE(ended(bench_step(run, {"--context", "100", "--stages", "2", "--stage", "2"}), 2,
                    {"--stage is 2, but there are 2 stages", "give 0 to 1"}));
  EXPECT_TRUE(ended(bench_step(run, {"--context", "100", "--stage", "1"}), 2,
                    {"--stage without --stages"}));
  EXPECT_TRUE(ended(bench_step(run, {"--context", "100", "--link-rate", "1G"}), 2,
                    {"--link-rate without --stages"}));
}

// The last stage has a copy of the embedding, and the gradient of the head; the first one has room
// for what comes of that, here all of it.
TEST(BenchStep, StagesOfATiedModel) {
  const RunDirectory run;
  const auto figures = [&](const Strings& more) {
    Strings words = {"bench",  "step", "--preset",  "tiny-qwen2", "--chunk",  "64",
                     "--page", "16",   "--context", "500",        "--update", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run.run(words);
    EXPECT_TRUE(ended(result, 0)) << result.err;
    return Json::parse(result.out);
  };
  const Json whole = figures({}), first = figures({"--stages", "2"}),
             last = figures({"--stages", "2", "--stage", "1"});
  const auto bytes = [](const Json& json, const char* part, const char* what) {
    return json[part][what].get<std::int64_t>();
  };
  constexpr std::int64_t kEmbedding = std::int64_t{320} * 64 * 4;
  for (const char* what : {"weights", "gradients"})
    EXPECT_EQ(bytes(first, "memory", what) + bytes(last, "memory", what),
              bytes(whole, "memory", what) + kEmbedding)
        << what;
  EXPECT_EQ(bytes(whole, "memory", "gradients"), bytes(whole, "memory", "weights") + kEmbedding);
  EXPECT_EQ(bytes(first, "update", "bytes_device") + bytes(last, "update", "bytes_device"),
            bytes(whole, "update", "bytes_device"));
  EXPECT_TRUE(whole["numerics"]["tied_apart"]);
}

TEST(BenchStep, ToAFile) {
  const RunDirectory run;
  const ProgramResult result =
      bench_step(run, {"--context", "256", "--json", "b.json", "--layers", "1", "--repeat", "2",
                       "--attention", "window", "--window", "32"});
  ASSERT_TRUE(ended(result, 0));
  EXPECT_EQ(result.out, "");
  const Json json = Json::parse(run.read("b.json"));
  EXPECT_EQ(json["layers"], 1);
  EXPECT_EQ(json["window"], 32);
  EXPECT_EQ(json["attention"], "window");
  EXPECT_EQ(json["repeat"], 2);
}

TEST(BenchStep, Updates) {
  const RunDirectory run;
  const ProgramResult plain = bench_step(run, {"--context", "256"});
  ASSERT_TRUE(ended(plain, 0));
  EXPECT_FALSE(Json::parse(plain.out).contains("update"));
  for (const std::string where : {"device", "host", "disk"}) {
    Strings words = {"--context", "256", "--update", "3", "--optimizer", where, "--dtype", "bf16"};
    if (where == "disk") words.insert(words.end(), {"--disk-path", "."});
    const ProgramResult result = bench_step(run, words);
    ASSERT_TRUE(ended(result, 0, {"update, optimizer on the " + where}));
    const Json update = Json::parse(result.out)["update"];
    EXPECT_EQ(update["optimizer"], where);
    EXPECT_EQ(update["seconds"].size(), 3);
    EXPECT_GT(update["seconds_best"].get<double>(), 0);
    EXPECT_GT(update["bytes_device"].get<std::int64_t>(), 0);
    EXPECT_EQ(update["bytes_host"].get<std::int64_t>() > 0, where != "device");
    EXPECT_EQ(update["bytes_disk"].get<std::int64_t>() > 0, where == "disk");
    EXPECT_EQ(update["seconds_from_host"].get<double>() > 0, where != "device");
    EXPECT_EQ(update["seconds_disk"].get<double>() > 0, where == "disk");
  }
  const Strings disk = {"--context", "256", "--update", "1", "--optimizer", "disk"};
  const auto with = [&](Strings more) {
    more.insert(more.begin(), disk.begin(), disk.end());
    return bench_step(run, more);
  };
  const ProgramResult kept = with({"--disk-path", ".", "--host-memory", "64M"});
  ASSERT_TRUE(ended(kept, 0));
  EXPECT_EQ(Json::parse(kept.out)["update"]["bytes_disk"], 0);
  EXPECT_TRUE(refused(with({}), {"--optimizer disk without --disk-path"}));
  EXPECT_TRUE(refused(with({"--disk-path", ".", "--disk-memory", "10K"}),
                      {"on disk", "--disk-memory leaves 10.00 KiB"}));
  EXPECT_TRUE(refused(bench_step(run, {"--context", "256", "--optimizer", "host"}),
                      {"--optimizer without --update"}));
}

TEST(BenchStep, TokensMayHaveTopics) {
  const RunDirectory run;
  const auto loss = [&](const char* tokens) {
    const ProgramResult result = bench_step(run, {"--context", "256", "--tokens", tokens});
    EXPECT_TRUE(ended(result, 0));
    return Json::parse(result.out)["loss"].get<double>();
  };
  EXPECT_NE(loss("random"), loss("topics"));
}

TEST(BenchStep, TheWindowBelongsToItsAttention) {
  const RunDirectory run;
  EXPECT_TRUE(refused(bench_step(run, {"--context", "256", "--attention", "window"}),
                      {"--attention window needs its size", "--window 1024"}));
  EXPECT_TRUE(refused(bench_step(run, {"--context", "256", "--window", "32"}),
                      {"--window without --attention window", "add --attention window"}));
  EXPECT_TRUE(
      refused(bench_step(run, {"--context", "256", "--attention", "window", "--window", "0"}),
              {"--window is 0", "1 or more"}));
  EXPECT_TRUE(ended(bench_step(run, {"--context", "256", "--attention", "sparsely"}), 2,
                    {"--attention", "sparse"}));
}

TEST(BenchStep, AUserSMistakes) {
  const RunDirectory run;
  EXPECT_TRUE(refused(bench_step(run, {"--context", "1"}), {"--context is 1"}));
  EXPECT_TRUE(refused(bench_step(run, {"--context", "many"}), {"--context: 'many' is not a size"}));
  for (const char* page : {"0", "1G"})
    EXPECT_TRUE(refused(run.run({"bench", "step", "--preset", "tiny-llama", "--context", "256",
                                 "--plan", "auto", "--page", page}),
                        {"--page is"}));
  EXPECT_TRUE(refused(bench_step(run, {"--context", "256", "--page-memory", "most"}),
                      {"--page-memory: 'most' is not a size", "least", "streaming"}));
  EXPECT_TRUE(refused(run.run({"bench", "step", "--preset", "tiny", "--context", "64"}),
                      {"no preset named \"tiny\""}));
}

TEST(BenchKernels, Figures) {
  const ProgramResult result =
      run_program({"bench", "kernels", "--filter", "swiglu", "--seconds", "0.01"});
  ASSERT_TRUE(ended(result, 0, {"swiglu_forward", "GB/s"}));
  const Json json = Json::parse(result.out);
  expect_keys(json, {"device", "threads", "kernels", "rows"});
  ASSERT_EQ(json["rows"].size(), 4u);  // forward and backward of two activations
  for (const Json& row : json["rows"]) {
    expect_keys(row, {"operation", "shape", "seconds", "rate", "unit"});
    EXPECT_TRUE(says(row["operation"].get<std::string>(), {"swiglu"}));
  }
}

TEST(BenchKernels, AFilterThatFitsNothing) {
  EXPECT_TRUE(refused(run_program({"bench", "kernels", "--filter", "convolution"}),
                      {"no operation has 'convolution' in its name", "without --filter"}));
  EXPECT_TRUE(
      refused(run_program({"bench", "kernels", "--filter", "swiglu", "--shape", "in FP4"}),
              {"no operation has 'swiglu' in its name and 'in FP4' in its shape", "--shape"}));
}

}  // namespace
}  // namespace longstride
