// longstride train with the optimizer's state on the device, the host or disk: the same files to
// the bit, a report of where the state is, and clear refusals.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

const std::string kDevice = "--memory.optimizer=device", kHost = "--memory.optimizer=host",
                  kDisk = "--memory.optimizer=disk", kHere = "--memory.disk_path=.";

Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void expect_same_state(const RunDirectory& a, const RunDirectory& b) {
  for (const char* file :
       {"out/step-6/model.safetensors", "out/step-6/state/optimizer.safetensors"})
    EXPECT_TRUE(a.read(file) == b.read(file)) << file;
}

double figure(const RunDirectory& run, const char* key) {
  return run.metrics().front().at(key).get<double>();
}

TEST(OptimizerPlace, TrainsTheSameBits) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string weights = "--model.dtype=" + dtype;
    const RunDirectory resident, hosted, leaving, coming;
    ASSERT_TRUE(ended(resident.train({weights, kDevice}), 0, {"saved out/step-6"}));
    ASSERT_TRUE(ended(hosted.train({weights, kHost}), 0,
                      {"saved out/step-6", "elsewhere    host ", ": optimizer "}));
    expect_same_state(resident, hosted);
    EXPECT_EQ(figure(resident, "bytes_host_optimizer"), 0);
    EXPECT_GT(figure(hosted, "bytes_host_optimizer"), 0);
    // Stopped in one place, resumed in the other.
    const std::string half = "--training.steps=3";
    ASSERT_TRUE(ended(leaving.train({weights, half, kDevice}), 0));
    ASSERT_TRUE(ended(leaving.train({weights, "--resume", kHost}), 0, {"resuming after step 3"}));
    expect_same_state(resident, leaving);
    ASSERT_TRUE(ended(coming.train({weights, half, kHost}), 0));
    ASSERT_TRUE(ended(coming.train({weights, "--resume", kDevice}), 0, {"resuming after step 3"}));
    expect_same_state(resident, coming);
  }
}

TEST(OptimizerPlace, TrainsTheSameBitsOnDisk) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string weights = "--model.dtype=" + dtype;
    const RunDirectory hosted;
    ASSERT_TRUE(ended(hosted.train({weights, kHost}), 0));
    const double all = figure(hosted, "bytes_host_optimizer");
    const Strings disk = {weights, kDisk, kHere, "--memory.disk=64M"},
                  split = {weights, kDisk, kHere,
                           fmt::format("--memory.host={}", static_cast<std::int64_t>(0.9 * all))},
                  fits = {weights, kDisk, kHere, "--memory.host=64M"};
    const RunDirectory on_disk, on_both, on_host;
    ASSERT_TRUE(ended(on_disk.train(disk), 0,
                      {"saved out/step-6", "; disk ", " of 64.00 MiB: optimizer "}));
    expect_same_state(hosted, on_disk);
    EXPECT_GE(figure(on_disk, "bytes_disk_optimizer"), all);
    ASSERT_TRUE(ended(on_both.train(split), 0, {"elsewhere    host ", "; disk "}));
    expect_same_state(hosted, on_both);
    EXPECT_GT(figure(on_both, "bytes_disk_optimizer"), 0);
    EXPECT_LT(figure(on_both, "bytes_disk_optimizer"), all);
    EXPECT_LE(figure(on_both, "bytes_host_optimizer"), 0.9 * all);
    ASSERT_TRUE(ended(on_host.train(fits), 0, {"elsewhere    host "}));
    expect_same_state(hosted, on_host);
    EXPECT_EQ(figure(on_host, "bytes_disk_optimizer"), 0);
    // Stopped in one place, resumed in another.
    const std::vector<std::pair<Strings, Strings>> moves = {{{weights, kDevice}, disk},
                                                            {disk, {weights, kHost}},
                                                            {{weights, kHost}, split},
                                                            {split, disk},
                                                            {disk, split},
                                                            {split, {weights, kDevice}}};
    for (const auto& [from, to] : moves) {
      const RunDirectory run;
      ASSERT_TRUE(ended(run.train(from + Strings{"--training.steps=3"}), 0));
      ASSERT_TRUE(ended(run.train(to + Strings{"--resume"}), 0, {"resuming after step 3"}));
      expect_same_state(hosted, run);
    }
  }
}

// The disk space is released at the end: no file is left behind.
TEST(OptimizerPlace, TheDiskIsGivenBack) {
  const RunDirectory run;
  std::filesystem::create_directories(run.path("disk"));
  ASSERT_TRUE(ended(run.train({kDisk, "--memory.disk_path=disk"}), 0));
  EXPECT_TRUE(std::filesystem::is_empty(run.path("disk")));
}

// Pages and state share the disk: both fit, or the numbers of both are in the refusal.
TEST(OptimizerPlace, PagesAndStateShareTheDisk) {
  const RunDirectory resident, run;
  ASSERT_TRUE(ended(resident.train({kDevice}), 0));
  const auto bytes = [&](const char* key) { return figure(resident, key); };
  const std::string gpu = fmt::format(
      "--memory.gpu={}", static_cast<std::int64_t>(
                             bytes("bytes_weights") + bytes("bytes_gradients") +
                             0.25 * bytes("bytes_optimizer") + bytes("bytes_workspace") +
                             0.7 * (bytes("bytes_kv_pages") + bytes("bytes_kv_gradient_pages"))));
  const Strings both = {kDisk, kHere, gpu, "--memory.activations=recompute"};
  ASSERT_TRUE(ended(run.train(both), 0, {"; disk ", " MiB, pages "}));
  expect_same_state(resident, run);
  const double state = figure(run, "bytes_disk_optimizer"), pages = figure(run, "bytes_disk_pages");
  EXPECT_GT(state, 0);
  EXPECT_GT(pages, 0);
  const auto limited = [&](double limit) {
    return both + Strings{"--dry-run", "--resume",
                          fmt::format("--memory.disk={}", static_cast<std::int64_t>(limit))};
  };
  EXPECT_TRUE(ended(run.train(limited(state + pages)), 0));
  EXPECT_TRUE(refused(run.train(limited(state + pages - 1)),
                      {"on disk at memory.disk_path", "memory.disk allows", "optimizer", "pages",
                       "raise memory.disk"}));
  // Pages have priority for host memory.
  const RunDirectory hosted;
  const Strings host = {fmt::format("--memory.host={}", static_cast<std::int64_t>(pages))};
  ASSERT_TRUE(ended(hosted.train(both + host), 0, {"elsewhere    host ", ", pages ", "; disk "}));
  expect_same_state(resident, hosted);
  EXPECT_EQ(figure(hosted, "bytes_disk_pages"), 0);
  EXPECT_EQ(figure(hosted, "bytes_host_pages"), pages);
  EXPECT_EQ(figure(hosted, "bytes_disk_optimizer"), state);
}

// On the device if it fits, else in host memory, else on disk.
TEST(OptimizerPlace, AutoGoesToTheDisk) {
  const RunDirectory resident, moved, split;
  ASSERT_TRUE(ended(resident.train({kHere, "--memory.activations=recompute"}), 0));
  EXPECT_EQ(figure(resident, "bytes_disk_optimizer"), 0);
  EXPECT_EQ(figure(resident, "bytes_host_optimizer"), 0);
  const std::string gpu =
      fmt::format("--memory.gpu={}", static_cast<std::int64_t>(figure(resident, "bytes")) - 1);
  const double all = figure(resident, "bytes_optimizer");
  ASSERT_TRUE(ended(moved.train({kHere, gpu}), 0, {"; disk "}));
  expect_same_state(resident, moved);
  EXPECT_GE(figure(moved, "bytes_disk_optimizer"), all);
  ASSERT_TRUE(ended(split.train({kHere, gpu, "--memory.host=64M"}), 0, {"elsewhere    host "}));
  expect_same_state(resident, split);
  EXPECT_EQ(figure(split, "bytes_disk_optimizer"), 0);
  // A disk that is too small for it is left to pages.
  const RunDirectory small;
  ASSERT_TRUE(ended(small.train({kHere, gpu, "--memory.disk=100K"}), 0, {"elsewhere    host "}));
  expect_same_state(resident, small);
}

// If the run does not fit on the device, the state is offloaded before pages.
TEST(OptimizerPlace, AutoLeavesTheDeviceWhereItIsTooSmall) {
  const RunDirectory resident, moved;
  ASSERT_TRUE(ended(resident.train({"--memory.host=64M", "--memory.activations=recompute"}), 0));
  const double all = figure(resident, "bytes");
  EXPECT_EQ(figure(resident, "bytes_host_optimizer"), 0);
  ASSERT_TRUE(
      ended(moved.train({"--memory.host=64M",
                         fmt::format("--memory.gpu={}", static_cast<std::int64_t>(all) - 1)}),
            0, {"elsewhere    host "}));
  expect_same_state(resident, moved);
  EXPECT_EQ(figure(moved, "bytes_host_optimizer"), figure(resident, "bytes_optimizer"));
  EXPECT_LT(figure(moved, "bytes_optimizer"), 0.3 * figure(resident, "bytes_optimizer"));
  EXPECT_EQ(figure(moved, "bytes_host_pages"), 0);
}

TEST(OptimizerPlace, DryRunSaysWhere) {
  const RunDirectory run;
  EXPECT_TRUE(ended(run.train({"--dry-run", kHost}), 0, {"on the host pass through it"}));
  const ProgramResult device = run.train({"--dry-run", kDevice});
  ASSERT_TRUE(ended(device, 0));
  EXPECT_EQ(device.err.find("on the host"), std::string::npos) << device.err;
}

TEST(OptimizerPlace, Refusals) {
  const RunDirectory run;
  EXPECT_TRUE(ended(run.train({"--memory.optimizer=gpu"}), 2,
                    {"memory.optimizer", "\"auto\", \"device\", \"host\", \"disk\""}));
  EXPECT_TRUE(ended(run.train({kDevice, "--memory.gpu=1M"}), 2,
                    {"this run needs", "set memory.optimizer to \"host\""}));
  EXPECT_TRUE(refused(run.train({kDisk}), {"memory.optimizer is \"disk\"", "memory.disk_path"}));
  EXPECT_TRUE(refused(run.train({kDisk, kHere, "--memory.disk=100K"}),
                      {"this run needs", "on disk", "memory.disk allows 100.00 KiB", "optimizer",
                       "raise memory.disk"}));
  EXPECT_TRUE(run.nothing_written());
  EXPECT_TRUE(refused(run.train({kDisk, "--memory.disk=64M", "--memory.disk_path=nowhere"}),
                      {"memory.disk_path", "nowhere", "cannot be written"}));
  RunOptions limited;
  limited.file_bytes = 100'000;
  EXPECT_TRUE(refused(run.train({kDisk, kHere}, limited),
                      {"memory.disk_path", "no room for", "slices of the optimizer's state",
                       "File too large", "choose another directory"}));
  EXPECT_FALSE(std::filesystem::exists(run.path("out/step-3")));
}

}  // namespace
}  // namespace longstride
