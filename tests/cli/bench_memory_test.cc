// longstride bench step with memory that is too small: one message, with what would do.
#include <regex>

#include "base/sizes.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

const std::string kAutomatic = "would keep [0-9.]+ MiB of activations: [0-9.]+ MiB on the device";

ProgramResult bench_step(const RunDirectory& run, const Strings& more) {
  Strings words = {"bench",   "step", "--preset", "tiny-llama", "--context", "1K",
                   "--chunk", "64",   "--page",   "16",         "--device",  "cpu"};
  words.insert(words.end(), more.begin(), more.end());
  return run.run(words);
}

// What a refusal advises to give for an option; it says so in one message and nothing else.
std::string advised(const ProgramResult& result, const std::string& option) {
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 2) << result.text();
  std::smatch found;
  const std::regex advice("hint: give at least " + option + " ([0-9.]+[KMG]iB)");
  EXPECT_TRUE(std::regex_search(result.err, found, advice)) << result.text();
  EXPECT_TRUE(std::regex_search(result.err, std::regex(kAutomatic))) << result.text();
  return found[1];
}

TEST(BenchMemory, PagesBelowTheLeast) {
  const RunDirectory run;
  for (const char* plan : {"recompute", "auto"}) {
    const auto with = [&](const std::string& bytes) {
      return bench_step(run, {"--plan", plan, "--page-memory", bytes});
    };
    const ProgramResult little = with("1K");
    ASSERT_TRUE(refused(little, {"--page-memory 1K is too little", "the largest working set"}));
    const std::string enough = advised(little, "--page-memory");
    EXPECT_TRUE(ended(with(enough), 0)) << plan << ": " << enough;
    EXPECT_EQ(enough, "304KiB");
    EXPECT_TRUE(refused(with("303KiB"), {"is too little"}));
  }
}

TEST(BenchMemory, HostMemoryForThePagesThatLeave) {
  const RunDirectory run;
  const auto with = [&](const std::string& bytes) {
    return bench_step(run, {"--page-memory", "least", "--host-memory", bytes});
  };
  const ProgramResult little = with("10K");
  ASSERT_TRUE(refused(little, {"--host-memory 10K is too little with --page-memory least",
                               "0 B are allowed on disk", "or --disk-memory with --disk-path"}));
  EXPECT_TRUE(ended(with(advised(little, "--host-memory")), 0));
  EXPECT_TRUE(refused(bench_step(run, {"--page-memory", "least", "--host-memory", "10K",
                                       "--disk-memory", "11K", "--disk-path", "."}),
                      {"11.00 KiB are allowed on disk", "or more --disk-memory"}));
}

TEST(BenchMemory, SparseLayersKeepGradientsOffTheDisk) {
  const RunDirectory run;
  const auto with = [&](const std::string& bytes) {
    return bench_step(run,
                      {"--attention", "sparse", "--page-memory", "least", "--host-memory", bytes});
  };
  const ProgramResult little = with("10K");
  ASSERT_TRUE(refused(little, {"--host-memory 10K is too little"}));
  EXPECT_FALSE(says(little.err, {"--disk-path"}));
  const std::string all = advised(little, "--host-memory");
  EXPECT_TRUE(ended(with(all), 0));
  // Beside a disk less is enough: keys and values go there.
  const auto beside_disk = [&](const std::string& bytes) {
    return bench_step(run, {"--attention", "sparse", "--page-memory", "least", "--host-memory",
                            bytes, "--disk-memory", "1GiB", "--disk-path", "."});
  };
  const ProgramResult refusal = beside_disk("10K");
  ASSERT_TRUE(refused(refusal, {"allowed on disk, where sparse layers keep no gradients"}));
  const std::string some = advised(refusal, "--host-memory");
  EXPECT_LT(parse_size(some, ""), parse_size(all, ""));
  EXPECT_TRUE(ended(beside_disk(some), 0));
}

TEST(BenchMemory, DeviceMemoryForAnAutomaticPlan) {
  const RunDirectory run;
  const auto with = [&](const std::string& bytes, const Strings& more = {}) {
    Strings words = {"--plan", "auto", "--gpu-memory", bytes};
    words.insert(words.end(), more.begin(), more.end());
    return bench_step(run, words);
  };
  // Less than weights and gradients, and less than the step.
  for (const char* bytes : {"100K", "1500KiB"}) {
    const ProgramResult little = with(bytes);
    ASSERT_TRUE(refused(little, {fmt::format("--gpu-memory {} is too little", bytes),
                                 "weights and gradients take 994.50 KiB"}));
    const std::string enough = advised(little, "--gpu-memory");
    EXPECT_EQ(enough, "2.4MiB");
    EXPECT_TRUE(ended(with(enough), 0));
    EXPECT_TRUE(refused(with("2.3MiB"), {"is too little"}));
  }
  // With room for pages in host memory, less will do.
  const Strings host = {"--host-memory", "4MiB"};
  const ProgramResult little = with("1000KiB", host);
  ASSERT_TRUE(refused(little, {"or more than --host-memory 4MiB"}));
  const std::string enough = advised(little, "--gpu-memory");
  EXPECT_LT(std::stod(enough), 2.0) << enough;
  EXPECT_TRUE(ended(with(enough, host), 0));
  // Pages as told take more than there is.
  const ProgramResult told = with("1500KiB", {"--page-memory", "400KiB"});
  ASSERT_TRUE(refused(told, {"--gpu-memory 1500KiB is too little with --page-memory 400KiB"}));
  EXPECT_TRUE(ended(with(advised(told, "--gpu-memory"), {"--page-memory", "400KiB"}), 0));
}

TEST(BenchMemory, AContextThatFitsNowhere) {
  const RunDirectory run;
  for (const char* plan : {"recompute", "auto"})
    EXPECT_TRUE(refused(run.run({"bench", "step", "--preset", "tiny-llama", "--context", "500G",
                                 "--device", "cpu", "--plan", plan}),
                        {"--context 500G", "KV pages alone need 250.00 TiB", "shorter --context"}));
}

TEST(BenchMemory, APlanOfAnotherStep) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.run({"plan", "--preset", "tiny-llama", "--context", "2K", "--chunk", "256",
                             "--device", "cpu", "--out", "plan.json"}),
                    0));
  const auto bench = [&](const Strings& more) {
    Strings words = {"bench", "step", "--device", "cpu", "--plan", "plan.json"};
    words.insert(words.end(), more.begin(), more.end());
    return run.run(words);
  };
  const auto command = [](const char* preset, const char* context, const char* chunk) {
    return fmt::format(
        "longstride plan --preset {} --context {} --chunk {} --out plan.json, or "
        "give --plan auto",
        preset, context, chunk);
  };
  EXPECT_TRUE(
      refused(bench({"--preset", "tiny-llama", "--context", "4K", "--chunk", "256"}),
              {"--plan plan.json: the plan is for another step",
               "its context is 2048, here it is 4096", command("tiny-llama", "4K", "256")}));
  EXPECT_TRUE(refused(bench({"--preset", "tiny-llama", "--context", "2K", "--chunk", "512"}),
                      {"its chunk is 256, here it is 512", command("tiny-llama", "2K", "512")}));
  EXPECT_TRUE(refused(bench({"--preset", "tiny-qwen3", "--context", "2K", "--chunk", "256"}),
                      {"the plan is for another step", command("tiny-qwen3", "2K", "256")}));
  EXPECT_TRUE(refused(
      bench({"--preset", "tiny-llama", "--context", "2K", "--chunk", "256", "--layers", "1"}),
      {"its layers is 2, here it is 1", "or give --plan auto"}));
}

}  // namespace
}  // namespace longstride
