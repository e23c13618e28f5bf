// Arenas are touched in the background, while others are made: no byte may count as taken and as
// promised, or plans that nearly fill the machine find too little memory.
#include "device/cuda/host_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/process_memory.h"

namespace longstride::cuda {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(HostArenaOnCuda, MemoryIsPromisedOrTakenButNotBoth) {
  constexpr std::int64_t kBytes = 512 * kMiB;
  // A process's first arena also brings the driver's own memory, some 100 MiB.
  make_host_arena(kMiB, 4096, "a test")->prepare(0, kMiB);
  const std::int64_t promised = promised_host_memory(), taken = resident_bytes();
  const auto arena = make_host_arena(kBytes, 4096, "a test");
  EXPECT_GE(promised_host_memory() + resident_bytes(), promised + taken + kBytes - 64 * kMiB);
  std::int64_t most = 0, left = 0;
  do {
    left = promised_host_memory() - promised;  // before what is taken, which only grows
    most = std::max(most, left + resident_bytes() - taken);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  } while (left > 0);
  arena->prepare(0, kBytes);
  EXPECT_GE(resident_bytes() - taken, kBytes - 64 * kMiB);
  EXPECT_LE(most, kBytes + 64 * kMiB);
}

TEST(HostArenaOnCuda, AnArenaThatEndsEarlyPromisesNothing) {
  const std::int64_t promised = promised_host_memory();
  make_host_arena(256 * kMiB, 4096, "a test");
  EXPECT_EQ(promised_host_memory(), promised);
}

}  // namespace
}  // namespace longstride::cuda
