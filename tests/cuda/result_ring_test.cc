// Small results reach the host while the stream continues.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/cuda/result_ring.h"
#include "device/device.h"

namespace longstride {
namespace {

constexpr std::int64_t kBytes = 1000;

class ResultsOnCuda : public ::testing::Test {
 protected:
  // Work for some milliseconds.
  void keep_busy() {
    for (int i = 0; i < 20; ++i) device_->zero(large_->data(), large_->bytes());
  }
  void write(int value) {
    const std::vector<std::byte> data(kBytes, static_cast<std::byte>(value));
    device_->copy_from_host(memory_->data(), data.data(), kBytes);
  }
  static bool holds(const std::vector<std::byte>& data, int value) {
    return data == std::vector<std::byte>(kBytes, static_cast<std::byte>(value));
  }

  std::unique_ptr<Device> device_ = make_cuda_device();
  std::unique_ptr<Memory> memory_ = device_->allocate(kBytes, "a result"),
                          large_ = device_->allocate(std::int64_t{256} << 20, "work");
};

TEST_F(ResultsOnCuda, AResultIsThereWhenItsFenceHasPassed) {
  std::vector<std::byte> host(kBytes);
  keep_busy();
  write(7);
  const ResultFence fence = device_->fetch_result(host.data(), memory_->data(), kBytes);
  write(8);  // later in the stream, so not what arrives
  keep_busy();
  device_->wait_for(fence);
  EXPECT_TRUE(holds(host, 7));
  EXPECT_TRUE(device_->has_passed(fence));
  EXPECT_TRUE(device_->has_passed({}));
}

TEST_F(ResultsOnCuda, AskingDoesNotWait) {
  std::vector<std::byte> host(kBytes);
  device_->stream().synchronize();
  write(3);
  keep_busy();
  const ResultFence fence = device_->fetch_result(host.data(), memory_->data(), kBytes);
  EXPECT_FALSE(device_->has_passed(fence)) << "the stream has work for milliseconds before it";
  EXPECT_TRUE(holds(host, 0));
  while (!device_->has_passed(fence)) {
  }
  EXPECT_TRUE(holds(host, 3));
}

TEST_F(ResultsOnCuda, MoreThanThereAreSlots) {
  constexpr int kMany = 3 * static_cast<int>(cuda::ResultRing::kSlots) + 1;
  std::vector<std::vector<std::byte>> hosts(kMany, std::vector<std::byte>(kBytes));
  std::vector<ResultFence> fences;
  for (int i = 0; i < kMany; ++i) {
    write(i + 1);
    fences.push_back(
        device_->fetch_result(hosts[static_cast<std::size_t>(i)].data(), memory_->data(), kBytes));
  }
  device_->wait_for(fences[kMany - 2]);  // and with it all before
  for (int i = 0; i + 1 < kMany; ++i)
    EXPECT_TRUE(holds(hosts[static_cast<std::size_t>(i)], i + 1)) << i;
  device_->stream().synchronize();
  EXPECT_TRUE(holds(hosts.back(), kMany));
}

TEST_F(ResultsOnCuda, LongOnesAreRefused) {
  EXPECT_THROW(device_->fetch_result(nullptr, large_->data(), Device::kMostResultBytes + 1),
               InternalError);
}

}  // namespace
}  // namespace longstride
