// longstride train with offloaded pages: the same files to the bit, and clear refusals.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

// A run that offloads pages and keeps the optimizer's state on the device.
class TieredDirectory : public RunDirectory {
 public:
  TieredDirectory() {
    files().write_text("run.toml", std::string(kTinyRun) + "[memory]\noptimizer = \"device\"\n");
  }
};

// Otherwise the workspace would shrink before pages leave.
constexpr const char* kRecompute = "--memory.activations=recompute";

// memory.gpu that leaves this share of the pages on the device.
std::string gpu_for(const Json& line, double share) {
  const auto bytes = [&](const char* tenant) {
    return line.at(std::string("bytes_") + tenant).get<double>();
  };
  return fmt::format(
      "--memory.gpu={}",
      static_cast<std::int64_t>(bytes("weights") + bytes("gradients") + bytes("optimizer") +
                                bytes("workspace") +
                                share * (bytes("kv_pages") + bytes("kv_gradient_pages"))));
}

TEST(Tiers, TrainTheSameBits) {
  const TieredDirectory resident;
  ASSERT_TRUE(ended(resident.train(), 0, {"saved out/step-6"}));
  const std::string gpu = gpu_for(resident.metrics().front(), 0.7);
  for (const std::vector<std::string>& where :
       {std::vector<std::string>{"--memory.host=64M"},
        {"--memory.disk=64M", "--memory.disk_path=."},
        {"--memory.disk_path=."},  // as much as is free
        {"--memory.host=20K", "--memory.disk=64M", "--memory.disk_path=."}}) {
    const TieredDirectory tiered;
    std::vector<std::string> options = {gpu, "--training.steps=3", kRecompute};
    options.insert(options.end(), where.begin(), where.end());
    ASSERT_TRUE(ended(tiered.train(options), 0, {"saved out/step-3", "elsewhere    "}));
    EXPECT_GT(tiered.metrics().front().at("bytes_moved_in").get<std::int64_t>(), 0);
    options[1] = "--training.steps=6";
    options.push_back("--resume");
    ASSERT_TRUE(ended(tiered.train(options), 0, {"saved out/step-6"}));
    for (const char* file :
         {"out/step-6/model.safetensors", "out/step-6/state/optimizer.safetensors"})
      EXPECT_EQ(read_text(tiered.path(file)), read_text(resident.path(file))) << file;
    EXPECT_GT(tiered.metrics().back().at("bytes_moved_in").get<double>(), 0);
    EXPECT_EQ(resident.metrics().back().at("bytes_moved_in").get<double>(), 0);
    EXPECT_LT(tiered.metrics().front().at("bytes_kv_pages").get<double>(),
              resident.metrics().front().at("bytes_kv_pages").get<double>());
  }
}

TEST(Tiers, RefuseWhatCannotFit) {
  const TieredDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=1", "--checkpoint.directory=first"}), 0, {}));
  const Json line = Json::parse(read_text(run.path("first/metrics.jsonl")));
  const std::string gpu = gpu_for(line, 0.7), tiny = gpu_for(line, 0.1);
  EXPECT_TRUE(ended(run.train({gpu, kRecompute}), 2, {"this run needs", "memory.host"}));
  EXPECT_TRUE(ended(run.train({gpu, "--memory.host=1K", kRecompute}), 2,
                    {"offloaded pages", "memory.disk"}));
  EXPECT_TRUE(
      ended(run.train({tiny, "--memory.host=64M", kRecompute}), 2, {"largest working set"}));
  EXPECT_TRUE(ended(run.train({gpu, "--memory.disk=64M", kRecompute}), 2, {"memory.disk_path"}));
  EXPECT_TRUE(ended(run.train({gpu, "--memory.disk=64M", "--memory.disk_path=nowhere", kRecompute}),
                    2, {"memory.disk_path", "nowhere", "cannot be written"}));
  EXPECT_FALSE(std::filesystem::exists(run.path("out/step-6")));
  // Less workspace makes room for pages, if activations may be recomputed within a chunk.
  EXPECT_TRUE(ended(run.train({gpu}), 0, {"saved out/step-6"}));
}

}  // namespace
}  // namespace longstride
