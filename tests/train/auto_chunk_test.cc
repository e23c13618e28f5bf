#include "train/auto_chunk.h"

#include <gtest/gtest.h>

#include "device/why_no_cuda.h"
#include "model/presets.h"

namespace longstride {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30, kK = 1024;

class AutoChunk : public testing::Test {
 protected:
  void SetUp() override {
    if (why_no_cuda() == "this build has no CUDA") GTEST_SKIP() << why_no_cuda();
  }
  std::int64_t chunk(std::int64_t context, std::int64_t device_bytes = 140 * kGiB,
                     const char* device = "NVIDIA H200", bool forward = false) {
    const std::unique_ptr<Device> machine = make_shapes_device(
        DeviceKind::kCuda,
        {.device = device, .device_bytes = device_bytes, .host_bytes = host_bytes_});
    const std::vector<ParameterSpec> specs = parameter_specs(model_, DType::kBF16);
    const ChunkCase run{model_, specs, numerics_, context, page_};
    return forward ? auto_forward_chunk(run, *machine) : auto_chunk(run, *machine);
  }
  std::int64_t forward_chunk(std::int64_t context, std::int64_t device_bytes = 140 * kGiB) {
    return chunk(context, device_bytes, "NVIDIA H200", true);
  }

  ModelConfig model_ = find_preset("qwen2.5-7b");
  NumericsChoice numerics_{.determinism = "fast"};
  std::int64_t page_ = 128, host_bytes_ = 128 * kGiB;
};

// A short context is one chunk; measured, chunks of 16384 are the fastest from 16K on.
TEST_F(AutoChunk, LongWhereTheDeviceHasRoom) {
  EXPECT_EQ(chunk(1000), kK);
  EXPECT_EQ(chunk(8 * kK), 8 * kK);
  EXPECT_EQ(chunk(16 * kK), 16 * kK);
  EXPECT_EQ(chunk(128 * kK), 16 * kK);
}

TEST_F(AutoChunk, ShortWhereItHasLittle) {
  model_ = find_preset("qwen2.5-0.5b");
  const std::int64_t much = chunk(32 * kK), little = chunk(32 * kK, 5 * kGiB);
  EXPECT_GT(much, little);
  EXPECT_GE(little, kK);
}

// Where nothing fits, the shortest leaves the least to complain about.
TEST_F(AutoChunk, TheShortestWhereNothingFits) { EXPECT_EQ(chunk(128 * kK, 20 * kGiB), kK); }

// The chunk decides bits: the host's memory must not decide the chunk.
TEST_F(AutoChunk, DoesNotDependOnTheHost) {
  const std::int64_t with_much = chunk(256 * kK);
  host_bytes_ = kGiB;
  EXPECT_EQ(chunk(256 * kK), with_much);
}

TEST_F(AutoChunk, SparsePagesShareTheirUnion) {
  numerics_.sparse.budgets.assign(static_cast<std::size_t>(model_.layers), 64);
  EXPECT_EQ(chunk(128 * kK), 4 * kK);
}

TEST_F(AutoChunk, AMultipleOfThePage) {
  page_ = 768;
  EXPECT_EQ(chunk(64 * kK) % page_, 0);
  EXPECT_GT(chunk(64 * kK), 4 * kK);
}

TEST_F(AutoChunk, AnUnknownDeviceHasOneToo) {
  EXPECT_EQ(chunk(128 * kK, 140 * kGiB, "a GPU of the next generation"), 16 * kK);
}

TEST_F(AutoChunk, ForwardAloneTakesTheLongestThatLeavesRoom) {
  EXPECT_EQ(forward_chunk(1000), kK);
  EXPECT_EQ(forward_chunk(128 * kK), 16 * kK);
  const std::int64_t little = forward_chunk(128 * kK, 17 * kGiB);
  EXPECT_GE(little, kK);
  EXPECT_LT(little, 16 * kK);
  EXPECT_EQ(forward_chunk(128 * kK, 10 * kGiB), kK);  // less than the weights
  numerics_.sparse.budgets.assign(static_cast<std::size_t>(model_.layers), 64);
  EXPECT_EQ(forward_chunk(128 * kK), 4 * kK);
}

TEST(AutoChunkOnCpu, IsOneThousand) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const ModelConfig model = find_preset("tiny-qwen2");
  const std::vector<ParameterSpec> specs = parameter_specs(model, DType::kF32);
  const NumericsChoice numerics;
  EXPECT_EQ(auto_chunk({model, specs, numerics, 64 * kK, 128}, *device), kK);
  EXPECT_EQ(auto_chunk({model, specs, numerics, 64 * kK, 2048}, *device), 2 * kK);
}

}  // namespace
}  // namespace longstride
