// The optimizer's state on the host and on disk beside a GPU: copies and arithmetic at the same
// time, the same bits as on the device.
#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"
#include "tests/train/optimizer_fixture.h"

namespace longstride {
namespace {

TEST(OptimizerOnGpu, TheSameBitsEverywhere) {
  const TempDirectory disk;
  const auto device = make_cuda_device();
  // Some slices of a size that takes the copies a while.
  ModelConfig config = optimizer_model();
  config.hidden_size = 320;
  config.ffn_size = 777;
  config.vocabulary = 3000;
  std::vector<OptimizerConfig> kinds = other_optimizers();
  kinds.emplace_back();
  for (const OptimizerConfig& kind : kinds)
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Trained resident(*device, config, dtype, {}, kind);
      resident.update(1, 3);
      const std::string expected = resident.bytes();
      for (const std::int64_t slice : {std::int64_t{64} << 10, std::int64_t{1} << 20})
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

}  // namespace
}  // namespace longstride
