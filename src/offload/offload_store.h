// Offloaded records of equal size: the first ones in host memory, the others on disk, staged in a
// few buffers. Copies run in the mover's lanes; a read of a record waits for its last write, and a
// write for the last read. A disk failure is an Error when the record is read, or earlier. Not
// thread-safe: the thread that drives the mover owns it.
//
// A record is addressed by its place, from 0 to the capacity: the owner assigns places itself or
// gets them from take().
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
  std::int64_t bytes = 0;        // of a record
  std::int64_t disk_bytes = 0;   // of a record on disk, at least `bytes`; 0: the same
  std::int64_t total_bytes = 0;  // of all, if the last one is shorter; 0: it is not
  std::int64_t most_pieces = 1;  // per record
  std::string what;              // for messages
  std::string what_on_host;      // likewise
};

// Bytes of a record, from `offset` on, that are contiguous on the device.
struct OffloadPiece {
  std::int64_t offset = 0, bytes = 0;
  std::byte* device = nullptr;
};

// A record with its pieces, for copies of several records at once.
struct OffloadRecord {
  std::int64_t place = 0;
  std::span<const OffloadPiece> pieces;
};

class OffloadStore {
 public:
  // `mover` outlives it; null if the capacity is 0. Throws Error if host or disk have too little
  // space.
  OffloadStore(Device& device, Mover* mover, const OffloadRecords& records,
               const OffloadCapacity& capacity);

  // The lowest free place, so that host memory is used before the disk. The capacity comes from the
  // plan, so running out is a broken invariant.
  std::int64_t take();
  bool has_free() const { return !free_.empty(); }
  void give(std::int64_t place);

  // Queues copies between the device and the record, in the lane to (from) the host, and returns
  // their fence. The caller must have made that lane wait for other accesses to the pieces on the
  // device. `read` waits for the disk.
  Fence write(std::int64_t place, std::span<const OffloadPiece> pieces);
  Fence read(std::int64_t place, std::span<const OffloadPiece> pieces);
  // The same for several records, whose copies in host memory are queued as one batch. Calls
  // done(index, fence) for each.
  template <class F>
  void write_all(std::span<const OffloadRecord> records, const F& done) {
    const Fence shared = copy_all(Lane::kToHost, records);
    for (std::size_t i = 0; i < records.size(); ++i)
      done(i, on_host(records[i].place) ? shared : write(records[i].place, records[i].pieces));
  }
  template <class F>
  void read_all(std::span<const OffloadRecord> records, const F& done) {
    const Fence shared = copy_all(Lane::kFromHost, records);
    for (std::size_t i = 0; i < records.size(); ++i)
      done(i, on_host(records[i].place) ? shared : read(records[i].place, records[i].pieces));
  }
  // Starts reading a record from disk. False if no buffer is free for it.
  bool read_ahead(std::int64_t place);
  // The same for records from `place` on, as many as buffers allow.
  void read_ahead_from(std::int64_t place);
  // Discards records that were read ahead or looked at.
  void drop_read_ahead();

  // Host access, while the mover is idle. The memory to write a record to; end_host_write stores
  // it.
  std::byte* begin_host_write(std::int64_t place);
  void end_host_write(std::int64_t place);
  // A record's bytes, valid until the next call of any function.
  const std::byte* look_at(std::int64_t place);

  // Returns when the disk is idle. Requires that the mover is.
  void finish();

  const OffloadCapacity& capacity() const { return capacity_; }
  const MovedBytes& moved() const { return moved_; }
  DiskTimes disk_times() const { return disk_ ? disk_->times() : DiskTimes{}; }

 private:
  bool on_host(std::int64_t place) const { return place < capacity_.host_records; }
  std::int64_t block(std::int64_t place) const { return place - capacity_.host_records; }
  std::byte* host_at(std::int64_t place);
  void add_copies(Lane lane, std::byte* host, std::span<const OffloadPiece> pieces);
  std::int64_t copy(Lane lane, std::byte* host, std::span<const OffloadPiece> pieces);
  // Copies those of the records that are in host memory.
  Fence copy_all(Lane lane, std::span<const OffloadRecord> records);

  Mover* mover_;
  OffloadRecords records_;
  OffloadCapacity capacity_;
  std::unique_ptr<DiskBuffers> disk_;
  std::unique_ptr<Memory> host_;
  std::vector<std::int64_t> free_;  // a heap: the lowest place is first
  std::vector<FenceSet> fences_;    // per place in host memory
  std::vector<bool> prepared_;      // likewise
  std::vector<Mover::Copy> copies_;
  std::int64_t looked_at_ = -1;  // a place on disk whose buffer is held
  MovedBytes moved_;
};

}  // namespace longstride
