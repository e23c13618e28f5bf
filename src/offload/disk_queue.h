// A file of equal blocks on disk, written and read in the background.
//
// Order: jobs of one block run in the order given, so a read sees every earlier write of its block.
// Jobs of different blocks run in any order, several at a time. The `ready` functions of writes are
// called one after another, in the order given. So a `ready` that blocks delays later writes, and
// later reads of the blocks they write, but no other read and no write that was already ready.
//
// I/O, in order of preference (offload/block_io.h): io_uring with O_DIRECT; threads with O_DIRECT,
// if the kernel or a container refuses io_uring; threads through the page cache, if the file system
// refuses O_DIRECT or the block size is not a multiple of 4096 bytes. With O_DIRECT, memory that is
// not aligned to 4096 bytes goes through a copy.
//
// Every block has a checksum (XXH3), computed when it is written and verified when it is read.
//
// Not thread-safe: one thread owns a queue and calls its functions.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/serial_worker.h"
#include "offload/block_io.h"
#include "offload/transfers.h"

namespace longstride {

class DiskQueue {
 public:
  // Reserves space for all blocks at once, in an unnamed file: the system removes it however the
  // process ends, and the directory may be removed meanwhile. `what` names the content in messages.
  // Throws Error if the directory cannot be written or has too little space.
  DiskQueue(const std::filesystem::path& directory, std::int64_t blocks, std::int64_t block_bytes,
            const std::string& what);
  // Uses I/O that is already open; `directory` is only for messages.
  DiskQueue(OpenedIo opened, const std::filesystem::path& directory, std::int64_t blocks,
            std::int64_t block_bytes, const std::string& what);
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;
  // Jobs that have not begun never run, and their `ready` is not called. Waits for requests in
  // flight and for a running `ready`; accesses no buffer after that.
  ~DiskQueue();

  using Ticket = std::uint64_t;
  // `from` must stay valid until the ticket is done, and unchanged once `ready` has returned.
  // `ready` (may be empty) is called first, on a thread of the queue; it may block, and an
  // exception from it fails the job.
  Ticket write(std::int64_t block, const std::byte* from, std::function<void()> ready);
  // The queue owns `to` until the ticket is done. Requires an earlier write of the block; if the
  // last one failed, the read fails for the same reason.
  Ticket read(std::int64_t block, std::byte* to);
  // Both throw if the job failed: Error for a disk failure, or the exception from `ready`. The
  // buffer is free then too. Further calls give the same answer. If the queue itself fails (a
  // broken invariant on one of its threads), all unfinished jobs fail with that exception, write
  // and read throw it too, and buffers are free only once the queue is destroyed.
  bool done(Ticket ticket);
  void wait(Ticket ticket);

  // Since construction; without the busy time of requests in flight.
  DiskMoved moved() const { return transfers_.moved(); }
  // "io_uring, direct"; for other kinds with the reason.
  std::string description() const;

 private:
  struct Job {
    Ticket ticket = 0;
    std::int64_t block = 0;
    const std::byte* from = nullptr;  // set in a write
    std::byte* to = nullptr;          // set in a read
    bool ready = false, started = false;
    std::uint64_t checksum = 0;            // a write: of its content; a read: the expected one
    std::exception_ptr failure = nullptr;  // of `ready`
  };
  struct Block {
    std::vector<Job*> jobs;  // not done, in order
    std::uint64_t checksum = 0;
    std::exception_ptr failure = nullptr;  // of the last write
    bool written = false;                  // or a job will write it
  };

  Job& add(std::int64_t block);
  SerialWorker& summing(const Job& job);
  void prepare(Job& job, const std::function<void()>& ready);
  void set_ready(Job& job, std::uint64_t checksum, const std::exception_ptr& failure);
  void verify(Job& job);
  void transferred(Job& job, int error);
  void finish(Job& job, const std::exception_ptr& failure);
  void break_down(const std::exception_ptr& failure);
  std::function<void(const std::exception_ptr&)> breaking();
  // These two require the mutex.
  void advance(Block& block);
  void remove(Job& job, const std::exception_ptr& failure);

  std::string where_, what_, why_not_better_;
  std::int64_t block_bytes_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Block> blocks_;
  std::unordered_map<Ticket, std::unique_ptr<Job>> jobs_;  // not done
  std::unordered_map<Ticket, std::exception_ptr> failures_;
  Ticket next_ticket_ = 1;
  bool stopping_ = false;
  std::exception_ptr broken_;  // why the queue itself failed

  // Destroyed in reverse order: once the queue is stopping, each gives work only to those above it.
  std::array<SerialWorker, 4> summing_;  // checksums: one thread may be slower than the disk
  Transfers transfers_;
  SerialWorker preparing_;
};

}  // namespace longstride
