// longstride train with the optimizer's state on the device or on the host: the same files to the
// bit, said where it is, and clear refusals.
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

const std::string kDevice = "--memory.optimizer=device", kHost = "--memory.optimizer=host";

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
                      {"saved out/step-6", "on the host pass through it", "available"}));
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

// Rather the state than pages, where the run does not fit on the device.
TEST(OptimizerPlace, AutoLeavesTheDeviceWhereItIsTooSmall) {
  const RunDirectory resident, moved;
  ASSERT_TRUE(ended(resident.train({"--memory.host=64M"}), 0));
  const double all = figure(resident, "bytes");
  EXPECT_EQ(figure(resident, "bytes_host_optimizer"), 0);
  ASSERT_TRUE(
      ended(moved.train({"--memory.host=64M",
                         fmt::format("--memory.gpu={}", static_cast<std::int64_t>(all) - 1)}),
            0, {"on the host pass through it"}));
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
                    {"memory.optimizer", "\"auto\", \"device\", \"host\""}));
  EXPECT_TRUE(ended(run.train({kDevice, "--memory.gpu=1M"}), 2,
                    {"this run needs", "set memory.optimizer to \"host\""}));
  EXPECT_TRUE(run.nothing_written());
}

}  // namespace
}  // namespace longstride
