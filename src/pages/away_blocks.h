// Where blocks of pages wait off the device: in host memory, and where that is full, on disk, to
// which they go through a few buffers. Copies run in the mover's lanes; a place is never written
// before it has been read, nor read before it has been written. Not thread-safe: the thread that
// runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "pages/disk_buffers.h"
#include "pages/page_marks.h"

namespace longstride {

struct AwayRoom {
  std::int64_t host_blocks = 0, disk_blocks = 0;
  std::filesystem::path disk_directory = {};
  std::int64_t disk_buffers = 12;  // blocks in host memory, on their way to or from the disk
  std::int64_t blocks() const { return host_blocks + disk_blocks; }
  bool operator==(const AwayRoom&) const = default;
};

// Pages that lie one after another on the device, from `page` of the block on.
struct PagePiece {
  std::int64_t page = 0, count = 0;
  std::byte* device = nullptr;
};

class AwayBlocks {
 public:
  // `mover` outlives it; null where there is no room.
  AwayBlocks(Device& device, Mover* mover, std::int64_t page_bytes, std::int64_t pages_per_block,
             const AwayRoom& room, const std::string& what);

  // A place for one block: in memory while there is one. The plan said how many are needed, so
  // none left is a broken invariant.
  std::int64_t take();
  bool has_room() const { return !free_.empty(); }
  void give(std::int64_t place);

  // Queues copies of a block's pages, in the lane to (from) the host. The caller has seen to it
  // that the lane comes after whoever uses the pages on the device.
  void write(std::int64_t place, std::span<const PagePiece> pieces);
  void read(std::int64_t place, std::span<const PagePiece> pieces);
  // The block is going to be read soon. False where all buffers are busy.
  bool read_ahead(std::int64_t place);
  // Returns when the disk has done everything; the mover has.
  void finish();

  struct Moved {
    std::int64_t out = 0, in = 0;             // bytes that left the device and came back
    std::int64_t to_disk = 0, from_disk = 0;  // of them
    Moved& operator+=(const Moved& more) {
      out += more.out;
      in += more.in;
      to_disk += more.to_disk;
      from_disk += more.from_disk;
      return *this;
    }
    Moved operator-(const Moved& earlier) const {
      return {out - earlier.out, in - earlier.in, to_disk - earlier.to_disk,
              from_disk - earlier.from_disk};
    }
  };
  const Moved& moved() const { return moved_; }
  DiskTimes disk_times() const { return disk_ ? disk_->times() : DiskTimes{}; }

 private:
  bool in_memory(std::int64_t place) const { return place < room_.host_blocks; }
  std::int64_t block_bytes() const { return page_bytes_ * pages_per_block_; }
  std::byte* host_at(std::int64_t place);
  std::int64_t copy(Lane lane, std::byte* host, std::span<const PagePiece> pieces);

  Mover* mover_;
  std::int64_t page_bytes_, pages_per_block_;
  AwayRoom room_;
  std::string what_;
  std::unique_ptr<Memory> host_;
  std::unique_ptr<DiskBuffers> disk_;
  std::vector<std::int64_t> free_;  // the first places last
  std::vector<PageMarks> marks_;    // per place in memory
  std::vector<bool> prepared_;      // likewise
  std::vector<Mover::Copy> copies_;
  Moved moved_;
};

}  // namespace longstride
