// Where slices of the optimizer's state lie off the device: the first ones in host memory, as many
// as there is room for, the others on disk, each a block that comes and goes through a few buffers
// (pages/disk_buffers.h). For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pages/disk_buffers.h"
#include "train/optimizer_state.h"
#include "train/state_slices.h"

namespace longstride {

struct SliceRoom {
  std::int64_t host_slices = 0, disk_slices = 0;
  std::int64_t disk_buffers = 0;  // of block_bytes each, in host memory
  std::int64_t block_bytes = 0;   // of a slice on disk: a multiple of what direct I/O asks for
  std::int64_t host_bytes = 0;    // buffers included
  std::int64_t disk_bytes() const { return disk_slices * block_bytes; }
};
SliceRoom slice_room(const StateSlices& slices, const StateOptions& options);

class SliceStore {
 public:
  // `mover` and `slices` outlive it. Throws Error where there is not enough memory or disk.
  SliceStore(Device& device, Mover& mover, const StateSlices& slices, const StateOptions& options);

  // Before a slice is written for the first time.
  void prepare(std::int64_t slice);
  // Before the slices are gone through from the first one on: forgets what was looked at.
  void rewind();
  // Where to copy the slice from, in the lane from the host, until end_in. Waits for the disk, and
  // begins to read what follows.
  const std::byte* begin_in(std::int64_t slice);
  void end_in(std::int64_t slice);
  // Where to copy the slice to, in the lane to the host, or to write it at once. end_out sends it
  // on to the disk; an error there shows when the slice is read again, or before.
  std::byte* begin_out(std::int64_t slice);
  void end_out(std::int64_t slice);
  // The slice's bytes, until the next call of any function. The mover has finished.
  const std::byte* look_at(std::int64_t slice);

  const SliceRoom& room() const { return room_; }
  DiskTimes disk_times() const { return disk_ ? disk_->times() : DiskTimes{}; }

 private:
  bool in_memory(std::int64_t slice) const { return slice < room_.host_slices; }
  std::int64_t block(std::int64_t slice) const { return slice - room_.host_slices; }
  std::byte* host_at(std::int64_t slice) const {
    return host_->data() + slice * slices_.slice_bytes;
  }
  void read_ahead(std::int64_t slice);

  const StateSlices& slices_;
  SliceRoom room_;
  std::unique_ptr<Memory> host_;
  std::unique_ptr<DiskBuffers> disk_;
  std::int64_t looked_at_ = -1;  // a slice on disk whose buffer is held
};

}  // namespace longstride
