// GPU activity as recorded by CUPTI: in the host's clock, with sizes and directions.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/trace_spans.h"
#include "device/device.h"

namespace longstride {
namespace {

const WaitSite kSite{"test/copy-after-zero"};

constexpr std::int64_t kBytes = std::int64_t{64} << 20;

const Activity* find(const ActivityLog& log, Activity::Kind kind) {
  const auto found = std::ranges::find_if(
      log.activities, [&](const Activity& a) { return a.kind == kind && a.bytes == kBytes; });
  return found == log.activities.end() ? nullptr : &*found;
}

TEST(ActivityOnCuda, NotesCopiesAndFillsInTheClockOfSpans) {
  const std::unique_ptr<Device> device = make_cuda_device();
  const std::unique_ptr<Memory> memory = device->allocate(kBytes, "a test"),
                                host = device->allocate_host(kBytes, kBytes, "a test");
  const std::unique_ptr<Mover> mover = device->make_mover();
  host->prepare(0, kBytes);
  device->stream().synchronize();
  for (int round = 0; round < 2; ++round) {  // the second recording starts empty
    std::unique_ptr<ActivityRecorder> recorder = device->record_activity();
    if (recorder == nullptr) GTEST_SKIP() << "no CUPTI here";
    const std::uint64_t begin = trace_clock_ns();
    device->zero(memory->data(), kBytes);
    mover->wait(Lane::kToHost, mover->fence(Lane::kCompute), kSite);
    const Mover::Copy out[] = {{host->data(), memory->data(), kBytes}};
    mover->copy(Lane::kToHost, out);
    mover->finish();
    const std::uint64_t middle = trace_clock_ns();
    const Mover::Copy in[] = {{memory->data(), host->data(), kBytes}};
    mover->copy(Lane::kFromHost, in);
    mover->finish();
    const std::uint64_t end = trace_clock_ns();
    const ActivityLog log = recorder->finish();
    EXPECT_EQ(log.dropped, 0);
    const Activity *fill = find(log, Activity::Kind::kFill),
                   *to_host = find(log, Activity::Kind::kCopyToHost),
                   *from_host = find(log, Activity::Kind::kCopyFromHost);
    ASSERT_TRUE(fill != nullptr && to_host != nullptr && from_host != nullptr);
    // CUPTI converts the GPU's clock to ours, within some microseconds.
    constexpr std::uint64_t kSlack = 100'000;
    EXPECT_GE(fill->begin_ns + kSlack, begin);
    EXPECT_LE(fill->end_ns, to_host->begin_ns);
    EXPECT_LE(to_host->end_ns, middle + kSlack);
    EXPECT_GE(from_host->begin_ns + kSlack, middle);
    EXPECT_LE(from_host->end_ns, end + kSlack);
    EXPECT_NE(fill->queue, to_host->queue);
    EXPECT_NE(to_host->queue, from_host->queue);
    EXPECT_EQ(
        std::ranges::count_if(log.activities, [](const Activity& a) { return a.bytes == kBytes; }),
        3);
    EXPECT_TRUE(std::ranges::is_sorted(log.activities, {}, &Activity::begin_ns));
  }
}

}  // namespace
}  // namespace longstride
