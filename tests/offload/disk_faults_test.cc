// Failing disks give an Error, never wrong content.
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "tests/offload/disk_queue_fixture.h"

namespace longstride {
namespace {

using Request = BlockIo::Request;
using Result = BlockIo::Result;
using Ticket = DiskQueue::Ticket;

constexpr std::int64_t kLarge = 5 << 20;  // three requests

class DiskFaults : public DiskKinds {
 protected:
  std::string write_error(std::int64_t block, std::int64_t bytes = kBytes) {
    return error_of([&] { write(block, 1, bytes); });
  }
  std::string read_error(std::int64_t block, std::int64_t bytes = kBytes) {
    return error_of([&] { (void)reads(block, 1, bytes); });
  }
};
INSTANTIATE_TEST_SUITE_P(Io, DiskFaults, kEveryKind, kind_name);

TEST_P(DiskFaults, ShortRequestsAreContinued) {
  // Not a multiple of 4096, so that direct I/O has to go back to an aligned offset.
  open(3, kLarge, {.after = [](const Request& request, Result& result) {
         if (request.bytes > 300'000) result.moved = 300'000;
       }});
  if (queue_ == nullptr) return;
  for (std::int64_t block = 0; block < 3; ++block) write(block, 7 + block, kLarge);
  for (std::int64_t block = 0; block < 3; ++block) EXPECT_TRUE(reads(block, 7 + block, kLarge));
  EXPECT_EQ(queue_->moved().read, 3 * kLarge);
}

TEST_P(DiskFaults, InterruptedRequestsAreRepeated) {
  int calls = 0;
  open(2, kBytes, {.after = [&calls](const Request&, Result& result) {
         if (++calls % 5 != 0) result.moved = calls % 2 == 0 ? -EINTR : -EAGAIN;
       }});
  if (queue_ == nullptr) return;
  write(1, 3);
  EXPECT_TRUE(reads(1, 3));
  queue_.reset();
  EXPECT_EQ(calls, 10);
}

TEST_P(DiskFaults, NoProgressIsAnErrorInTheEnd) {
  open(1, kBytes, {.after = [](const Request&, Result& result) { result.moved = -EAGAIN; }});
  if (queue_ == nullptr) return;
  EXPECT_TRUE(says(write_error(0), {"could not be written", "Input/output error"}));
}

TEST_P(DiskFaults, TheEndOfTheFileIsAnError) {
  std::atomic<bool> ended = false;
  open(2, kLarge, {.after = [&ended](const Request& request, Result& result) {
         if (ended && request.offset >= kLarge + (2 << 20)) result.moved = 0;
       }});
  if (queue_ == nullptr) return;
  write(0, 1, kLarge);
  write(1, 1, kLarge);
  ended = true;
  EXPECT_TRUE(says(read_error(1, kLarge), {directory_.path().string(), "the test's pages",
                                           "could not be read back", "shorter"}));
  EXPECT_TRUE(reads(0, 1, kLarge));
  EXPECT_TRUE(says(write_error(1, kLarge), {"could not be written", "No space left"}));
}

TEST_P(DiskFaults, AFailedReadSaysSoAndLeavesTheRestAlone) {
  std::atomic<int> failing = 0;
  open(2, kLarge, {.after = [&failing](const Request& request, Result& result) {
         // One request of three.
         if (request.to != nullptr && request.offset == (2 << 20) && failing-- > 0)
           result.moved = -EIO;
       }});
  if (queue_ == nullptr) return;
  write(0, 1, kLarge);
  write(1, 2, kLarge);
  failing = 1;
  const Buffer buffer(kLarge);
  const Ticket ticket = queue_->read(0, buffer.data());
  const std::string first = error_of([&] { queue_->wait(ticket); });
  EXPECT_TRUE(says(first, {directory_.path().string(), "the test's pages", "could not be read back",
                           "Input/output error", "memory.disk_path", "last checkpoint"}));
  EXPECT_EQ(error_of([&] { queue_->done(ticket); }), first);
  failing = 0;
  EXPECT_TRUE(reads(1, 2, kLarge));
  EXPECT_TRUE(reads(0, 1, kLarge));
}

TEST_P(DiskFaults, ABlockWhoseWriteFailedIsNotRead) {
  std::atomic<bool> failing = false;
  open(2, kBytes, {.after = [&failing](const Request& request, Result& result) {
         if (request.from != nullptr && failing) result.moved = -EIO;
       }});
  if (queue_ == nullptr) return;
  write(0, 1);
  failing = true;
  // The read is queued before the write has failed.
  const Buffer from(kBytes), to(kBytes);
  const Ticket written = queue_->write(0, from.data(), {});
  const Ticket read = queue_->read(0, to.data());
  const std::string error = error_of([&] { queue_->wait(read); });
  EXPECT_TRUE(says(error, {"could not be written", "Input/output error"}));
  EXPECT_EQ(error_of([&] { queue_->wait(written); }), error);
  EXPECT_EQ(read_error(0), error);
  failing = false;
  write(0, 4);
  EXPECT_TRUE(reads(0, 4));
}

TEST_P(DiskFaults, AChangedByteIsFound) {
  std::atomic<std::int64_t> changed = -1;
  open(2, kLarge, {.after = [&changed](const Request& request, Result&) {
         const std::int64_t at = changed - request.offset;
         if (request.to != nullptr && at >= 0 && at < request.bytes) request.to[at] ^= std::byte{1};
       }});
  if (queue_ == nullptr) return;
  write(0, 1, kLarge);
  write(1, 1, kLarge);
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{3 << 20}, kLarge - 1}) {
    changed = at;
    EXPECT_TRUE(says(read_error(0, kLarge),
                     {"the test's pages", "read back from", directory_.path().string(),
                      "differs from what was written", "memory.disk_path is faulty"}));
    EXPECT_TRUE(reads(1, 1, kLarge));
  }
}

TEST_P(DiskFaults, AWriteThatWentElsewhereIsFound) {
  std::atomic<bool> astray = false;
  open(3, kBytes, {.before = [&astray](Request& request) {
         if (request.from != nullptr && astray) request.offset = 2 * kBytes;
       }});
  if (queue_ == nullptr) return;
  write(0, 1);
  write(2, 2);
  astray = true;
  write(0, 3);  // block 0 keeps its old content
  EXPECT_TRUE(says(read_error(0), {"differs from what was written"}));
  EXPECT_TRUE(says(read_error(2), {"differs from what was written"}));
}

TEST_P(DiskFaults, WhatReadyThrowsIsTheTicketsError) {
  open(2);
  if (queue_ == nullptr) return;
  write(0, 1);
  const Buffer from(kBytes);
  const Ticket ticket =
      queue_->write(0, from.data(), [] { throw Error("the copy failed", "try again"); });
  EXPECT_EQ(error_of([&] { queue_->wait(ticket); }), "the copy failed\ntry again");
  EXPECT_EQ(read_error(0), "the copy failed\ntry again");  // not the old content
  write(1, 2);
  EXPECT_TRUE(reads(1, 2));
}

TEST_P(DiskFaults, ARefusalOfTheSystemIsReported) {
  open(4);
  if (queue_ == nullptr) return;
  write(3, 1);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = kBytes;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = write_error(2);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(says(error, {"could not be written", "File too large"}));
  EXPECT_TRUE(reads(3, 1));
  write(2, 6);
  EXPECT_TRUE(reads(2, 6));
}

TEST(DiskQueueFaults, DirectoriesThatCannotBeUsed) {
  const TempDirectory directory;
  const auto error_in = [](const std::filesystem::path& path, std::int64_t blocks) {
    return error_of([&] { const DiskQueue queue(path, blocks, 4096, "pages"); });
  };
  EXPECT_TRUE(says(error_in(directory.path() / "missing", 1),
                   {"memory.disk_path", "missing", "cannot be written", "No such file"}));
  EXPECT_TRUE(says(error_in(directory.write_text("file", "text"), 1),
                   {"memory.disk_path", "file", "cannot be written", "Not a directory"}));
  EXPECT_TRUE(says(error_in(directory.path(), std::int64_t{1} << 45),
                   {"memory.disk_path", "no room for", "131072.00 TiB of pages", " are free",
                    "No space left", "choose another directory"}));
}

TEST(DiskQueueFaults, MistakesOfTheCallerAreRefused) {
  const TempDirectory directory;
  DiskQueue queue(directory.path(), 2, 4096, "pages");
  const Buffer buffer(4096);
  EXPECT_THROW(queue.read(0, buffer.data()), InternalError);  // never written
  EXPECT_THROW(queue.read(2, buffer.data()), InternalError);
  EXPECT_THROW(queue.write(-1, buffer.data(), {}), InternalError);
  EXPECT_THROW(queue.done(1), InternalError);
}

}  // namespace
}  // namespace longstride
