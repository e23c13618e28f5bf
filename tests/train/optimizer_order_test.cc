// Copies of the optimizer's state overlap compute: there are no conflicting accesses, and every
// wait is necessary for that.
#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"
#include "tests/offload/wait_sites.h"
#include "tests/train/optimizer_fixture.h"
#include "tests/train/watched_device.h"

namespace longstride {
namespace {

// A start and two updates, with one kind of wait left out.
struct Seen {
  std::int64_t races = 0;
  std::int64_t buffer_waits = 0;  // before the disk reads into a buffer, or copies go there
  bool right = false;             // the bits, and nothing was thrown
};

Seen run(const StateOptions& state, DType dtype, const WaitSite* left_out, std::uint64_t seed = 0) {
  const auto cpu = make_cpu_device();
  Trained resident(*cpu, optimizer_model(), dtype, {});
  resident.update(1, 2);
  Seen seen;
  WatchedDevice device;
  device.watch.left_out = left_out;
  device.watch.seed = seed;
  try {
    Trained trained(device, optimizer_model(), dtype, state);
    trained.update(1, 2);
    EXPECT_GT(device.watch.copies, 0);
    seen.right = trained.bytes() == resident.bytes();
  } catch (const Error&) {
    // A record that changed while it was written fails its checksum.
  }
  seen.races = device.watch.races;
  seen.buffer_waits = device.watch.waits[wait_site("offload/buffer-after-copy")];
  return seen;
}

constexpr std::int64_t kSlices[] = {64, 192, 1088, 1 << 20};

TEST(OptimizerOrder, NothingMeets) {
  const TempDirectory directory;
  for (const std::int64_t slice : kSlices)
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (const StateOptions& state : {on_host(slice), on_disk(directory.path(), slice),
                                        split(directory.path(), slice, optimizer_model(), dtype)}) {
        const Seen seen = run(state, dtype, nullptr);
        EXPECT_EQ(seen.races, 0) << slice;
        EXPECT_TRUE(seen.right) << slice;
      }
}

// Waiting for the lanes during stack unwinding must not terminate the program.
TEST(OptimizerOrder, ADeviceThatFailsEndsInItsError) {
  const TempDirectory directory;
  for (const StateOptions& state : {on_host(192), on_disk(directory.path(), 192)}) {
    WatchedDevice device;
    EXPECT_THROW(
        {
          Trained trained(device, optimizer_model(), DType::kBF16, state);
          device.watch.is_gone = true;
          trained.update(1, 1);
        },
        Error);
  }
}

TEST(OptimizerOrder, NoWaitCanBeLeftOut) {
  const TempDirectory directory;
  for (const WaitSite* site : wait_sites_of("optimizer"))
    for (const StateOptions& state :
         {on_host(192), on_disk(directory.path(), 192),
          split(directory.path(), 192, optimizer_model(), DType::kBF16)})
      EXPECT_GT(run(state, DType::kBF16, site).races, 0) << site->name();
}

// Disk accesses are not in the mover's clocks: wrong bits under one of several timings show them.
TEST(OptimizerOrder, NoWaitCanBeLeftOutForTheDisk) {
  const TempDirectory directory;
  bool wrong = false;
  for (std::uint64_t seed = 0; seed < 20 && !wrong; ++seed)
    wrong = !run(on_disk(directory.path(), 192), DType::kBF16,
                 wait_site("offload/disk-write-after-copy"), seed)
                 .right;
  EXPECT_TRUE(wrong);
  // The wait for the copy from a buffer before its reuse cannot be tested here, because compute has
  // already waited for that copy; tests of pages leave the wait out.
  EXPECT_GT(run(on_disk(directory.path(), 192), DType::kBF16, nullptr).buffer_waits, 0);
}

}  // namespace
}  // namespace longstride
