// Moves pieces of memory to and from a file, several at a time, on a thread of its own: cuts them
// into requests, goes on after short ones, and tells how each transfer ended.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "offload/block_io.h"

namespace longstride {

struct DiskMoved {
  std::int64_t read = 0, written = 0;  // bytes
  double busy_s = 0;                   // requests were under way
};

class Transfers {
 public:
  // `failed` gets what breaks the thread of the transfers, on that thread; it must not throw. No
  // transfer ends after that. Throws Error where the system gives no thread.
  Transfers(std::unique_ptr<BlockIo> io, std::function<void(const std::exception_ptr&)> failed);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  // Waits for requests that are under way and makes no more: what is cut short ends with ECANCELED,
  // what had not begun is dropped. Memory is not touched after that.
  ~Transfers();

  struct Transfer {
    std::byte* to = nullptr;  // a read; or
    const std::byte* from = nullptr;
    std::int64_t bytes = 0, offset = 0;
    // With 0, or errno's number: ENODATA where the file ended too early. On the thread of the
    // transfers, which stands still meanwhile; what it throws breaks the thread.
    std::function<void(int error)> ended;
  };
  // From any thread. Transfers begin in the order given and end in any. Memory that is not aligned
  // as the file needs it goes through a copy.
  void start(Transfer transfer);

  DiskMoved moved() const;  // from any thread; since the beginning
  const BlockIo& io() const { return *io_; }

 private:
  struct Running {
    Transfer transfer;
    AlignedMemory aligned = nullptr;  // in place of the transfer's own memory
    std::int64_t asked = 0;           // bytes that requests were made for
    int requests = 0;                 // under way
    int error = 0;                    // the first
    std::uint64_t begin_ns = 0;       // for a trace
  };
  struct Flight {
    Running* running = nullptr;  // null: free
    BlockIo::Request rest;
    int tries = 0;  // without progress
  };

  void run();
  void serve();
  bool take_up();  // false: stopping
  void make_requests();
  void align(Running& running) const;
  void settle(const BlockIo::Result& result);
  void go_on(Flight& flight, std::int64_t moved);
  void end(Running& running);

  std::unique_ptr<BlockIo> io_;
  std::function<void(const std::exception_ptr&)> failed_;
  // Of the thread alone.
  std::list<Running> running_;
  std::vector<Flight> flights_;
  std::vector<std::uint64_t> free_flights_;
  bool winding_up_ = false;

  mutable std::mutex mutex_;
  std::deque<Transfer> waiting_;
  DiskMoved moved_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace longstride
