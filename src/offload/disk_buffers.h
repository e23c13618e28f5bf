// Blocks on disk, staged in a few buffers in host memory: from the device into a buffer, from there
// to the disk, and back. Reads may start ahead of time. Not thread-safe: the thread that runs the
// step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "offload/disk_queue.h"
#include "offload/offload_times.h"

namespace longstride {

class DiskBuffers {
 public:
  // `mover` outlives it. At least two buffers; read-ahead may use two thirds of them.
  DiskBuffers(Device& device, Mover& mover, std::unique_ptr<DiskQueue> queue,
              std::int64_t block_bytes, std::int64_t buffers, const std::string& what);
  DiskBuffers(const DiskBuffers&) = delete;
  DiskBuffers& operator=(const DiskBuffers&) = delete;
  ~DiskBuffers();

  // The buffer to copy the block to, in the lane to the host; end_write queues it for the disk. One
  // write at a time.
  std::byte* begin_write(std::int64_t block);
  // Returns the fence of that copy.
  Fence end_write(std::int64_t block);
  // The buffer to copy the block from, in the lane from the host, until end_read. Waits for the
  // disk.
  std::byte* begin_read(std::int64_t block);
  // Returns the fence of that copy.
  Fence end_read(std::int64_t block);
  // Starts reading a block; false if no buffer is free for it.
  bool read_ahead(std::int64_t block);
  // Discards what was read ahead of the block.
  void drop(std::int64_t block);
  // Returns when the disk is idle.
  void finish();
  DiskTimes times() const { return {queue_->moved().busy_s, waited_s_}; }

 private:
  enum class State : std::uint8_t { kFree, kWriting, kReading };
  struct Buffer {
    State state = State::kFree;
    std::int64_t block = -1;
    DiskQueue::Ticket ticket = 0;
    Fence read;  // of the copy to the device
    std::uint64_t since = 0;
  };
  std::byte* data(const Buffer& buffer) const {
    return memory_->data() + (&buffer - buffers_.data()) * block_bytes_;
  }
  Buffer* reading(std::int64_t block);
  // A buffer that is free; waits for the oldest write if all are busy.
  Buffer& take();
  void start_reading(Buffer& buffer, std::int64_t block);
  void settle();  // frees the buffers of completed writes
  void wait(DiskQueue::Ticket ticket);

  Mover& mover_;
  std::int64_t block_bytes_;
  std::unique_ptr<Memory> memory_;
  std::vector<Buffer> buffers_;
  std::int64_t most_ahead_, ahead_ = 0;  // buffers in kReading
  std::uint64_t clock_ = 0;
  double waited_s_ = 0;
  std::unique_ptr<DiskQueue> queue_;  // last: it accesses the buffers
};

}  // namespace longstride
