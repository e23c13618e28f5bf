// Copies of the optimizer's state run beside arithmetic: nothing meets that must not, and every
// wait is needed for it.
#include <gtest/gtest.h>

#include "tests/train/optimizer_fixture.h"
#include "tests/train/watched_device.h"

namespace longstride {
namespace {

// Races of a start and two updates, with one kind of wait left out.
std::int64_t races(std::int64_t slice, DType dtype, std::optional<WaitSite> left_out) {
  WatchedDevice device;
  device.watch.left_out = left_out;
  Trained trained(device, optimizer_model(), dtype, on_host(slice));
  trained.update(1, 2);
  EXPECT_GT(device.watch.copies, 0);
  return device.watch.races;
}

TEST(OptimizerOrder, NothingMeets) {
  for (const std::int64_t slice : {64, 192, 1088, 1 << 20})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      EXPECT_EQ(races(slice, dtype, std::nullopt), 0) << slice;
}

TEST(OptimizerOrder, EveryWaitIsNeeded) {
  for (const WaitSite site : {WaitSite::kOptimizerInAfterOut, WaitSite::kOptimizerUseAfterIn,
                              WaitSite::kOptimizerZeroAfterOut, WaitSite::kOptimizerOutAfterUse})
    EXPECT_GT(races(192, DType::kBF16, site), 0) << static_cast<int>(site);
}

}  // namespace
}  // namespace longstride
