// memory.gpu = auto gave pages all that was free on a GPU, and the first kernel that was loaded
// later, or a list that grew, found nothing left.
#include <gtest/gtest.h>

#include "train/run_memory.h"

namespace longstride {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

// Numbers of a device, which allocates nothing.
class DeviceOf final : public Device {
 public:
  DeviceOf(std::int64_t used, std::int64_t free, bool shares)
      : used_(used), free_(free), shares_(shares) {}
  DeviceKind kind() const override { return DeviceKind::kShapes; }
  std::string name() const override { return "numbers"; }
  Stream& stream() override { return stream_; }
  std::unique_ptr<Memory> allocate(std::int64_t, const std::string&) override { return nullptr; }
  std::unique_ptr<Mover> make_mover() override { return nullptr; }
  void copy_to_host(void*, const void*, std::int64_t) override {}
  void copy_to_host_later(void*, const void*, std::int64_t) override {}
  void copy_from_host(void*, const void*, std::int64_t) override {}
  void zero(void*, std::int64_t) override {}
  std::int64_t allocated_bytes() const override { return 0; }
  std::int64_t used_bytes() const override { return used_; }
  std::int64_t available_bytes() const override { return free_; }
  bool shares_host_memory() const override { return shares_; }

 private:
  std::int64_t used_, free_;
  bool shares_;
  Stream stream_{DeviceKind::kShapes};
};

TEST(GpuReserve, AutoLeavesRoomForWhatIsAllocatedLater) {
  const DeviceBudget h200 = device_budget(DeviceOf(10 * kGiB, 130 * kGiB, false), std::nullopt, 0);
  EXPECT_EQ(h200.reserve, 140 * kGiB / 100);  // of all memory, not of what is free
  EXPECT_EQ(h200.available, 130 * kGiB - h200.reserve);
  const DeviceBudget small = device_budget(DeviceOf(kGiB, 15 * kGiB, false), std::nullopt, 0);
  EXPECT_EQ(small.reserve, kGiB);
  EXPECT_EQ(small.available, 14 * kGiB);
}

TEST(GpuReserve, NothingFreeIsNoNegativeBudget) {
  const DeviceBudget full = device_budget(DeviceOf(15 * kGiB, kGiB / 2, false), std::nullopt, 0);
  EXPECT_EQ(full.available, 0);
  EXPECT_EQ(full.reserve, kGiB / 2);
}

// `nvidia-smi` shows no more than was asked for: driver and libraries are part of it.
TEST(GpuReserve, WhatIsAskedForIsForEverything) {
  const DeviceOf device(10 * kGiB, 130 * kGiB, false);
  const std::int64_t reserve = 140 * kGiB / 100;
  EXPECT_EQ(device_budget(device, 80 * kGiB, 0).available, 80 * kGiB - reserve);
  EXPECT_EQ(device_budget(device, 80 * kGiB, 14 * kGiB).available, 66 * kGiB - reserve);
  EXPECT_EQ(device_budget(device, kGiB, 0).available, 0);
  // Who asks for more than there is takes the reserve too.
  EXPECT_EQ(device_budget(device, 200 * kGiB, 0).available, 130 * kGiB);
}

// What libraries will take of a device that is not there is not free.
TEST(GpuReserve, LibrariesOfAnAbsentDevice) {
  const DeviceOf device(0, 140 * kGiB, false);
  EXPECT_EQ(device_budget(device, std::nullopt, 14 * kGiB).available,
            126 * kGiB - 140 * kGiB / 100);
}

TEST(GpuReserve, IsNotTakenOfTheHostsMemory) {
  const DeviceBudget cpu = device_budget(DeviceOf(8 * kGiB, 16 * kGiB, true), std::nullopt, 0);
  EXPECT_EQ(cpu.available, 16 * kGiB);
  EXPECT_EQ(cpu.reserve, 0);
}

}  // namespace
}  // namespace longstride
