// The optimizer's state on the host and on disk beside a GPU: copies and arithmetic at the same
// time, the same bits as on the device.
#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"
#include "tests/train/optimizer_fixture.h"

namespace longstride {
namespace {

void expect_same_bits_everywhere(const ModelConfig& config,
                                 const std::vector<std::int64_t>& slices) {
  const TempDirectory disk;
  const auto device = make_cuda_device();
  std::vector<OptimizerConfig> kinds = other_optimizers();
  kinds.emplace_back();
  for (const OptimizerConfig& kind : kinds)
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Trained resident(*device, config, dtype, {}, kind);
      resident.update(1, 3);
      const std::string expected = resident.bytes();
      for (const std::int64_t slice : slices)
        for (const StateOptions& place : {on_host(slice), on_disk(disk.path(), slice),
                                          split(disk.path(), slice, config, dtype, kind)}) {
          Trained moved(*device, config, dtype, place, kind);
          moved.update(1, 3);
          EXPECT_TRUE(moved.bytes() == expected)
              << name_of(kind) << ", " << name_of(dtype) << ", slices of " << slice << ", place "
              << static_cast<int>(place.place) << ", " << place.host_bytes
              << " bytes of host memory";
        }
    }
}

TEST(OptimizerOnGpu, TheSameBitsEverywhere) {
  expect_same_bits_everywhere(optimizer_model(), {4 << 10, 64 << 10});
}

// Slices that take the copies a while.
TEST(OptimizerOnGpu, LargeStatesToo) {
  ModelConfig config = optimizer_model();
  config.hidden_size = 320;
  config.ffn_size = 777;
  config.vocabulary = 3000;
  expect_same_bits_everywhere(config, {64 << 10, 1 << 20});
}

}  // namespace
}  // namespace longstride
