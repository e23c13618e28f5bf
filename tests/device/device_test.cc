#include "device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "device/cpu/available_memory.h"

namespace longstride {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(CpuDevice, GivesAlignedZeroedMemory) {
  const auto device = make_cpu_device();
  for (std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5000}, 20 * kMiB + 3}) {
    const auto memory = device->allocate(bytes, "a test");
    ASSERT_NE(memory->data(), nullptr);
    EXPECT_EQ(memory->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 256, 0u);
    EXPECT_TRUE(std::all_of(memory->data(), memory->data() + bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
    if (bytes > 0) memory->data()[bytes - 1] = std::byte{1};
  }
}

TEST(CpuDevice, AResultIsThereAtOnce) {
  const auto device = make_cpu_device();
  const auto memory = device->allocate(16, "a result");
  const int value = 7;
  int host = 0;
  device->copy_from_host(memory->data(), &value, sizeof value);
  const ResultFence fence = device->fetch_result(&host, memory->data(), sizeof host);
  EXPECT_EQ(host, 7);
  EXPECT_TRUE(device->has_passed(fence));
  EXPECT_NO_THROW(device->wait_for(fence));
  EXPECT_THROW(device->fetch_result(&host, memory->data(), Device::kMostResultBytes + 1),
               InternalError);
}

TEST(CpuDevice, CountsItsBytes) {
  const auto device = make_cpu_device();
  EXPECT_EQ(device->allocated_bytes(), 0);
  auto a = device->allocate(1000, "a");
  const auto b = device->allocate(3 * kMiB, "b");
  EXPECT_EQ(device->allocated_bytes(), 1000 + 3 * kMiB);
  a.reset();
  EXPECT_EQ(device->allocated_bytes(), 3 * kMiB);
}

TEST(CpuDevice, MemoryThatIsNotTouchedCostsNothing) {
  const auto device = make_cpu_device();
  const std::int64_t before = resident_anonymous_memory();
  const std::int64_t bytes = std::min<std::int64_t>(device->available_bytes() / 2, 1024 * kMiB);
  const auto memory = device->allocate(bytes, "a test");
  EXPECT_LT(resident_anonymous_memory() - before, bytes / 8);
}

TEST(CpuDevice, CountsWhatItPromisedAsTaken) {
  const auto device = make_cpu_device();
  const std::int64_t before = device->available_bytes();
  const auto memory = device->allocate(before / 2, "a test");
  // Other processes allocate and free meanwhile; a quarter is a wide margin.
  EXPECT_LT(device->available_bytes(), before / 4 * 3);
}

TEST(CpuDevice, RefusesMoreThanThereIs) {
  const auto device = make_cpu_device();
  try {
    device->allocate(std::int64_t{1} << 50, "the KV pages");
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_NE(message.find("the KV pages"), std::string::npos) << message;
    EXPECT_NE(message.find("asked"), std::string::npos) << message;
    EXPECT_NE(message.find("available"), std::string::npos) << message;
    EXPECT_FALSE(e.hint().empty());
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

TEST(CpuDevice, CopiesAndZeroes) {
  const auto device = make_cpu_device();
  const auto memory = device->allocate(100, "a test");
  std::vector<unsigned char> out(100), in(100);
  std::iota(in.begin(), in.end(), static_cast<unsigned char>(1));
  device->copy_from_host(memory->data(), in.data(), 100);
  device->zero(memory->data() + 10, 20);
  device->copy_to_host(out.data(), memory->data(), 100);
  std::fill_n(in.begin() + 10, 20, static_cast<unsigned char>(0));
  EXPECT_EQ(in, out);
  EXPECT_FALSE(device->name().empty());
  EXPECT_EQ(device->stream().kind(), DeviceKind::kCpu);
}

// On other devices, copies go through a queue that only one thread may use.
TEST(CpuDevice, LetsNoParallelForCopy) {
  const auto device = make_cpu_device();
  const auto memory = device->allocate(8, "a test");
  std::int64_t value = 0;
  const auto refused = [](const std::function<void()>& use) {
    EXPECT_THROW(parallel_for(3, [&](std::int64_t) { use(); }), InternalError);
  };
  refused([&] { device->copy_from_host(memory->data(), &value, 8); });
  refused([&] { device->copy_to_host(&value, memory->data(), 8); });
  refused([&] { device->zero(memory->data(), 8); });
}

TEST(MakeDevice, KnowsItsNames) {
  EXPECT_EQ(make_device("cpu")->kind(), DeviceKind::kCpu);
  if (!cuda_is_available()) {
    EXPECT_EQ(make_device("auto")->kind(), DeviceKind::kCpu);
    EXPECT_THROW(make_device("cuda"), Error);
  }
  EXPECT_THROW(make_device("tpu"), Error);
}

TEST(ShapesDevice, HasSizesButNoMemory) {
  Device& device = shapes_device(DeviceKind::kCpu);
  const auto memory = device.allocate(std::int64_t{1} << 60, "a plan");
  EXPECT_EQ(memory->data(), nullptr);
  EXPECT_EQ(memory->bytes(), std::int64_t{1} << 60);
  EXPECT_EQ(device.allocated_bytes(), 0);
  EXPECT_EQ(device.stream().kind(), DeviceKind::kShapes);
  char byte = 0;
  EXPECT_THROW(device.copy_to_host(&byte, nullptr, 1), InternalError);
}

}  // namespace
}  // namespace longstride
