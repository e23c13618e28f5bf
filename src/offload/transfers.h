// Moves pieces of memory to and from a file, several at a time, on a thread of its own: splits them
// into requests, continues after short ones, and reports how each transfer ended. Any thread may
// call start and moved.
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
  double busy_s = 0;                   // time with requests in flight
};

class Transfers {
 public:
  // `failed` is called with the exception that ends the transfer thread, on that thread; it must
  // not throw. No transfer ends after that. Throws Error if the system refuses to start a thread.
  Transfers(std::unique_ptr<BlockIo> io, std::function<void(const std::exception_ptr&)> failed);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  // Waits for requests in flight and makes no more: unfinished transfers end with ECANCELED, those
  // not begun are dropped. Accesses no memory after that.
  ~Transfers();

  struct Transfer {
    std::byte* to = nullptr;          // set in a read
    const std::byte* from = nullptr;  // set in a write
    std::int64_t bytes = 0, offset = 0;
    // Called with 0 or errno (ENODATA if the file ended too early), on the transfer thread, which
    // it blocks; an exception from it ends the thread.
    std::function<void(int error)> ended;
  };
  // May be called from any thread. Transfers begin in the order given and end in any order. Memory
  // that is not aligned as the file requires goes through a copy.
  void start(Transfer transfer);

  DiskMoved moved() const;  // since construction; from any thread
  const BlockIo& io() const { return *io_; }

 private:
  struct Running {
    Transfer transfer;
    AlignedMemory aligned = nullptr;  // replaces the transfer's own memory if that is not aligned
    std::int64_t asked = 0;           // bytes requested so far
    int requests = 0;                 // in flight
    int error = 0;                    // the first one
    std::uint64_t begin_ns = 0;       // for a trace
  };
  struct Flight {
    Running* running = nullptr;  // null: free
    BlockIo::Request rest;
    int tries = 0;  // consecutive ones without progress
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
  // Used by the transfer thread alone.
  std::list<Running> running_;
  std::vector<Flight> flights_;
  std::vector<std::uint64_t> free_flights_;
  bool winding_up_ = false;

  mutable std::mutex mutex_;
  std::deque<Transfer> waiting_;
  DiskMoved moved_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace longstride
