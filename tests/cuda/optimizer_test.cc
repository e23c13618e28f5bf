// The optimizer's state on the host beside a GPU: copies and arithmetic at the same time, the same
// bits as on the device.
#include <gtest/gtest.h>

#include "tests/train/optimizer_fixture.h"

namespace longstride {
namespace {

TEST(OptimizerOnGpu, TheSameBitsOnTheHost) {
  const auto device = make_cuda_device();
  // Some slices of a size that takes the copies a while.
  ModelConfig config = optimizer_model();
  config.hidden_size = 320;
  config.ffn_size = 777;
  config.vocabulary = 3000;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Trained resident(*device, config, dtype, {});
    resident.update(1, 3);
    const std::string expected = resident.bytes();
    for (const std::int64_t slice : {std::int64_t{64} << 10, std::int64_t{1} << 20}) {
      Trained hosted(*device, config, dtype, on_host(slice));
      hosted.update(1, 3);
      EXPECT_TRUE(hosted.bytes() == expected) << name_of(dtype) << ", slices of " << slice;
    }
  }
}

}  // namespace
}  // namespace longstride
