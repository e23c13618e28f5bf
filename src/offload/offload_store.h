// Records of equal size off the device: in host memory while that lasts, the others on disk, to
// which they go through a few buffers. Copies run in the mover's lanes; a record is never written
// before it has been read, nor read before it has been written. What the disk did wrong is an Error
// when the record is read, or earlier. Not thread-safe: the thread that drives the mover owns it.
//
// A record is addressed by its place, from 0 to the capacity: the owner counts places itself, or
// has them handed out by take().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/fence_set.h"
#include "offload/disk_buffers.h"
#include "offload/offload_capacity.h"
#include "offload/offload_times.h"

namespace longstride {

struct OffloadRecords {
  std::int64_t bytes = 0;        // of one
  std::int64_t disk_bytes = 0;   // of one on disk, at least `bytes`; 0: the same
  std::int64_t total_bytes = 0;  // of all, where the last is shorter; 0: it is not
  std::int64_t most_pieces = 1;  // that one is copied in
  std::string what;              // for messages
  std::string what_on_host;      // likewise
};

// Bytes of a record, from `offset` on, that lie together on the device.
struct OffloadPiece {
  std::int64_t offset = 0, bytes = 0;
  std::byte* device = nullptr;
};

class OffloadStore {
 public:
  // `mover` outlives it; null where the capacity is none. Throws Error where host or disk have not
  // that much.
  OffloadStore(Device& device, Mover* mover, const OffloadRecords& records,
               const OffloadCapacity& capacity);

  // A place for one record, the lowest that is free, so that host memory is used before the disk.
  // The plan said how many are needed, so none left is a broken invariant.
  std::int64_t take();
  bool has_free() const { return !free_.empty(); }
  void give(std::int64_t place);

  // Queues copies between the device and the record, in the lane to (from) the host, and gives
  // their fence. The caller has seen to it that the lane comes after whoever accesses the pieces on
  // the device. `read` waits for the disk.
  Fence write(std::int64_t place, std::span<const OffloadPiece> pieces);
  Fence read(std::int64_t place, std::span<const OffloadPiece> pieces);
  // The record is going to be read soon. False where all buffers are busy.
  bool read_ahead(std::int64_t place);
  // The same for the records from `place` on, as many as there are buffers for.
  void read_ahead_from(std::int64_t place);
  // Nobody waits for what was read ahead or looked at.
  void drop_read_ahead();

  // For the host, while the mover has nothing to do. Where to write a record; end_host_write sends
  // it on.
  std::byte* begin_host_write(std::int64_t place);
  void end_host_write(std::int64_t place);
  // A record's bytes, until the next call of any function.
  const std::byte* look_at(std::int64_t place);

  // Returns when the disk has done everything; the mover has.
  void finish();

  const OffloadCapacity& capacity() const { return capacity_; }
  const MovedBytes& moved() const { return moved_; }
  DiskTimes disk_times() const { return disk_ ? disk_->times() : DiskTimes{}; }

 private:
  bool on_host(std::int64_t place) const { return place < capacity_.host_records; }
  std::int64_t block(std::int64_t place) const { return place - capacity_.host_records; }
  std::byte* host_at(std::int64_t place);
  std::int64_t copy(Lane lane, std::byte* host, std::span<const OffloadPiece> pieces);

  Mover* mover_;
  OffloadRecords records_;
  OffloadCapacity capacity_;
  std::unique_ptr<DiskBuffers> disk_;
  std::unique_ptr<Memory> host_;
  std::vector<std::int64_t> free_;  // the first places last
  std::vector<FenceSet> fences_;    // per place in host memory
  std::vector<bool> prepared_;      // likewise
  std::vector<Mover::Copy> copies_;
  std::int64_t looked_at_ = -1;  // a place on disk whose buffer is held
  MovedBytes moved_;
};

}  // namespace longstride
