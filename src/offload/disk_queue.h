// Blocks on disk: a file of equal blocks, written and read beside everything else.
//
// Order. Jobs of one block run one after another as they were given, so a read sees every earlier
// write of its block. Jobs of different blocks run in any order, several at a time; the `ready`
// functions of writes are called one after another as they were given. So a `ready` that blocks
// holds up later writes, and later reads of the blocks they write: no other read, and no write that
// was ready before.
//
// How it does I/O, in order of preference (offload/block_io.h): io_uring past the system's cache;
// threads past the cache, where the kernel or a container refuses io_uring; threads through the
// cache, where the file system refuses O_DIRECT or a block is no multiple of 4096 bytes. Memory
// that does not begin at a multiple of 4096 is copied on the way if the cache is passed by.
//
// Every block has a checksum (XXH3), taken when it is written and compared when it is read.
//
// One thread owns a queue and calls its functions.
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
  // Space for all blocks is reserved at once, in a file without a name: the system removes it
  // however the process ends, and the directory may go meanwhile. `what` is in it, for messages.
  // Throws Error where the directory cannot be written or has not that much room.
  DiskQueue(const std::filesystem::path& directory, std::int64_t blocks, std::int64_t block_bytes,
            const std::string& what);
  // On I/O that is there already; `directory` is for messages alone.
  DiskQueue(OpenedIo opened, const std::filesystem::path& directory, std::int64_t blocks,
            std::int64_t block_bytes, const std::string& what);
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;
  // Jobs that have not begun never run, and their `ready` is not called. Waits for requests that
  // are under way and for a `ready` that is being called; touches no buffer after that.
  ~DiskQueue();

  using Ticket = std::uint64_t;
  // `from` must stay, unchanged from ready on, until the ticket is done. `ready` (may be empty) is
  // called first, on a thread of the queue; it may block, and what it throws fails the job.
  Ticket write(std::int64_t block, const std::byte* from, std::function<void()> ready);
  // `to` is the queue's until the ticket is done. The block was written before; if the last write
  // failed, so does this, for the same reason.
  Ticket read(std::int64_t block, std::byte* to);
  // Throw where the job failed: Error for what the disk did, or what `ready` threw. The buffer is
  // free then too. May be asked again and gives the same answer. Where the queue itself broke down
  // (an invariant of ours, on one of its threads), all unfinished jobs fail with what broke it, and
  // buffers are free once the queue is destroyed; write and read throw the same.
  bool done(Ticket ticket);
  void wait(Ticket ticket);

  // Since the beginning; without busy time that is still under way.
  DiskMoved moved() const { return transfers_.moved(); }
  // "io_uring, direct"; with the reason where it is not that.
  std::string description() const;

 private:
  struct Job {
    Ticket ticket = 0;
    std::int64_t block = 0;
    const std::byte* from = nullptr;  // a write, or
    std::byte* to = nullptr;
    bool ready = false, started = false;
    std::uint64_t checksum = 0;            // a write: of its content; a read: what it must be
    std::exception_ptr failure = nullptr;  // of `ready`
  };
  struct Block {
    std::vector<Job*> jobs;  // not done, in order
    std::uint64_t checksum = 0;
    std::exception_ptr failure = nullptr;  // of the last write
    bool written = false;                  // or will be, by a job
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
  // These two with the mutex held.
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
  std::exception_ptr broken_;  // by what

  // Each gives work to those above it alone, once the queue is stopping.
  std::array<SerialWorker, 4> summing_;  // checksums: one thread may be slower than the disk
  Transfers transfers_;
  SerialWorker preparing_;
};

}  // namespace longstride
