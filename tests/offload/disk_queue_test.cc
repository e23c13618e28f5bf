// Blocks read back as they were written, in the order that the queue promises.
#include "offload/disk_queue.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <future>
#include <thread>

#include "tests/offload/disk_queue_fixture.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Ticket = DiskQueue::Ticket;

// Forbids io_uring to the calling thread, as containers do. Returns whether that was possible.
bool refuse_io_uring() {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct Mix {
  std::int64_t blocks, block_bytes;
  int jobs;
  std::size_t at_once;
  std::uint64_t most_shift = 1;  // misalignment of memory is below this
};

// Reads and writes of random blocks, many in flight; each read must return the content of the last
// write before it.
void run_mix(DiskQueue& queue, const Mix& mix, std::uint64_t seed) {
  struct UnderWay {
    Ticket ticket;
    std::uint64_t expected;  // 0: a write
    std::unique_ptr<Buffer> buffer;
  };
  Random random(seed);
  std::vector<std::uint64_t> content(static_cast<std::size_t>(mix.blocks));
  std::vector<UnderWay> under_way;
  DiskMoved moved;
  for (int i = 1; i <= mix.jobs || !under_way.empty(); ++i) {
    if (i <= mix.jobs) {
      const auto block = static_cast<std::int64_t>(random.below(mix.blocks));
      std::uint64_t& now = content[static_cast<std::size_t>(block)];
      auto buffer = std::make_unique<Buffer>(
          mix.block_bytes, static_cast<std::int64_t>(random.below(mix.most_shift)));
      if (now == 0 || random.below(2) == 0) {
        now = static_cast<std::uint64_t>(i);
        // Filled on a thread of the queue, like a copy that arrives from the device.
        const auto arrive = [to = buffer.get(), now, late = random.below(16) == 0] {
          if (late) std::this_thread::sleep_for(std::chrono::microseconds(200));
          to->fill(now);
        };
        const Ticket ticket = queue.write(block, buffer->data(), arrive);
        under_way.push_back({ticket, 0, std::move(buffer)});
        moved.written += mix.block_bytes;
      } else {
        const Ticket ticket = queue.read(block, buffer->data());
        under_way.push_back({ticket, now, std::move(buffer)});
        moved.read += mix.block_bytes;
      }
      if (under_way.size() < mix.at_once) continue;
    }
    const auto which = static_cast<std::ptrdiff_t>(random.below(under_way.size()));
    const UnderWay& one = under_way[static_cast<std::size_t>(which)];
    if (random.below(2) == 0)
      queue.wait(one.ticket);
    else
      while (!queue.done(one.ticket)) std::this_thread::yield();
    if (one.expected != 0) {
      ASSERT_TRUE(one.buffer->holds(one.expected)) << "ticket " << one.ticket;
    }
    EXPECT_TRUE(queue.done(one.ticket));
    under_way.erase(under_way.begin() + which);
  }
  EXPECT_EQ(queue.moved().written, moved.written);
  EXPECT_EQ(queue.moved().read, moved.read);
  EXPECT_GT(queue.moved().busy_s, 0);
}

class DiskQueueKinds : public DiskKinds {};
INSTANTIATE_TEST_SUITE_P(Io, DiskQueueKinds, kEveryKind, kind_name);

TEST_P(DiskQueueKinds, ReadsFindWhatWasWritten) {
  for (const Mix& mix : {Mix{5, 4096, 2000, 40}, Mix{200, 8192, 2000, 64, 5000},
                         // Several requests per block, the last one shorter.
                         Mix{6, (5 << 20) + 4096, 60, 12, 2}}) {
    open(mix.blocks, mix.block_bytes);
    if (queue_ == nullptr) return;
    run_mix(*queue_, mix, static_cast<std::uint64_t>(mix.block_bytes));
    queue_.reset();
  }
}

TEST_P(DiskQueueKinds, JobsOfOneBlockKeepTheirOrder) {
  open(2);
  if (queue_ == nullptr) return;
  constexpr std::uint64_t kRounds = 50;
  std::vector<std::unique_ptr<Buffer>> written, read;
  Ticket last = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    written.push_back(std::make_unique<Buffer>(kBytes));
    written.back()->fill(round);
    queue_->write(1, written.back()->data(), {});
    for (int twice = 0; twice < 2; ++twice) {
      read.push_back(std::make_unique<Buffer>(kBytes));
      last = queue_->read(1, read.back()->data());
    }
  }
  queue_->wait(last);
  for (std::uint64_t i = 0; i < read.size(); ++i) EXPECT_TRUE(read[i]->holds(1 + i / 2));
}

TEST_P(DiskQueueKinds, AWriteThatIsNotReadyHoldsUpOnlyWhatThePromiseSays) {
  open(4);
  if (queue_ == nullptr) return;
  write(0, 10);
  write(1, 11);
  std::promise<void> arrival;
  const Buffer late(kBytes), later(kBytes), of_late(kBytes);
  const Ticket blocked = queue_->write(1, late.data(), [&] {
    arrival.get_future().wait();
    late.fill(21);
  });
  later.fill(22);
  const Ticket behind = queue_->write(2, later.data(), {});
  const Ticket sees_it = queue_->read(1, of_late.data());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(reads(0, 10));  // would hang if the reads were delayed
  EXPECT_FALSE(queue_->done(blocked));
  EXPECT_FALSE(queue_->done(behind));
  EXPECT_FALSE(queue_->done(sees_it));
  arrival.set_value();
  queue_->wait(behind);
  queue_->wait(sees_it);
  EXPECT_TRUE(queue_->done(blocked));
  EXPECT_TRUE(of_late.holds(21));
  EXPECT_TRUE(reads(2, 22));
}

TEST_P(DiskQueueKinds, EndsWithJobsInEveryState) {
  constexpr std::int64_t kMany = 1 << 20;
  for (int round = 0; round < 3; ++round) {
    open(10, kMany);
    if (queue_ == nullptr) return;
    std::vector<std::unique_ptr<Buffer>> buffers;
    const auto buffer = [&] {
      buffers.push_back(std::make_unique<Buffer>(kMany));
      return buffers.back()->data();
    };
    for (std::int64_t block = 0; block < 8; ++block) queue_->write(block, buffer(), {});
    std::promise<void> called, leave;
    std::atomic<bool> left = false, called_another = false;
    queue_->write(8, buffer(), [&] {
      called.set_value();
      leave.get_future().wait();
      left = true;
    });
    queue_->write(9, buffer(), [&] { called_another = true; });
    called.get_future().wait();
    for (std::int64_t block = 0; block < 10; ++block) queue_->read(block, buffer());
    std::thread later([&] {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(100));  // the queue is being destroyed by then
      leave.set_value();
    });
    queue_.reset();
    later.join();
    EXPECT_TRUE(left);
    EXPECT_FALSE(called_another);
    for (const auto& one : buffers) one->fill(2);  // a sanitizer detects later accesses
  }
}

TEST_P(DiskQueueKinds, GoesOnWhenTheDirectoryIsRemoved) {
  open(3);
  if (queue_ == nullptr) return;
  write(0, 5);
  EXPECT_TRUE(fs::is_empty(directory_.path()));  // the file has no name
  fs::remove_all(directory_.path());
  write(1, 6);
  EXPECT_TRUE(reads(0, 5));
  EXPECT_TRUE(reads(1, 6));
}

TEST(DiskQueue, TakesTheBestIoThatThereIs) {
  const TempDirectory directory;
  const auto file = std::make_shared<OffloadFile>(directory.path(), 1 << 20, "the test's blocks");
  std::string why_not;
  const OpenedIo whole = open_block_io(file, 4096);
  if (make_block_io(IoKind::kUringDirect, file, 4096, &why_not) != nullptr) {
    EXPECT_EQ(whole.io->description(), "io_uring, direct");
    EXPECT_EQ(whole.why_not_better, "");
  } else {
    EXPECT_EQ(whole.io->description().find("io_uring"), std::string::npos);
    EXPECT_NE(whole.why_not_better, "");
  }
}

TEST(DiskQueue, OddBlocksGoThroughTheCache) {
  const TempDirectory directory;
  const Mix mix{30, 300, 2000, 40, 64};
  DiskQueue queue(directory.path(), mix.blocks, mix.block_bytes, "pages");
  EXPECT_EQ(queue.description(), "threads, buffered (blocks of 300 bytes are no multiple of 4096)");
  run_mix(queue, mix, 1);
}

TEST(DiskQueue, ThreadsServeWhereIoUringIsRefused) {
  const TempDirectory directory;
  const auto file = std::make_shared<OffloadFile>(directory.path(), 1 << 20, "the test's blocks");
  std::string why_not;
  if (make_block_io(IoKind::kThreadsDirect, file, 4096, &why_not) == nullptr)
    GTEST_SKIP() << why_not;
  OpenedIo opened;
  bool refused = false;
  // The filter applies to this thread and those it starts.
  std::thread([&] {
    refused = refuse_io_uring();
    if (refused) opened = open_block_io(file, 4096);
  }).join();
  if (!refused) GTEST_SKIP() << "no filter of system calls here";
  DiskQueue queue(std::move(opened), directory.path(), 256, 4096, "pages");
  EXPECT_TRUE(says(queue.description(), {"threads, direct (io_uring: "}));
  run_mix(queue, {256, 4096, 1000, 40, 64}, 2);
}

}  // namespace
}  // namespace longstride
