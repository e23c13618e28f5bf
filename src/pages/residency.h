// Which blocks of pages are on the device, and which one leaves when room is needed. Policy alone:
// it knows sizes and the order of the step, and moves nothing.
//
// A block is what one layer holds of one chunk. The order of a step is known before it starts, so
// the block that leaves is the one that is needed again last: a layer that was just done goes
// before one that comes next, and of a layer's blocks the first chunk's (windows have left it
// behind, and the backward pass comes to it last). In a dense model all blocks of a layer are
// needed at its next turn, and this keeps as many as fit in place.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace longstride {

struct Block {
  std::int64_t layer = 0, chunk = 0;
  bool operator==(const Block&) const = default;
};

// A task at `position` of the step uses the blocks of chunks [first_chunk, last_chunk] of its
// layer.
struct BlockUse {
  std::int64_t position = 0, first_chunk = 0, last_chunk = 0;
};

class Residency {
 public:
  Residency(std::int64_t layers, std::int64_t capacity_pages);

  // A new sequence, with each layer's uses in the order of the step. Nothing may be on the device.
  void begin(std::vector<std::vector<BlockUse>> uses);
  std::int64_t free_pages() const { return capacity_ - used_; }
  // More pages of a block are on the device now.
  void arrive(Block block, std::int64_t pages);
  // A block leaves with all its `pages`.
  void leave(Block block, std::int64_t pages);
  // The block on the device that is used again last after `position`, but none of those that the
  // task itself uses. Nothing where there is no other.
  std::optional<Block> victim(std::int64_t position, std::int64_t layer, const BlockUse& own) const;

 private:
  std::int64_t next_use(Block block, std::int64_t position) const;

  std::int64_t capacity_, used_ = 0;
  std::vector<std::vector<BlockUse>> uses_;
  std::vector<std::set<std::int64_t>> chunks_;  // per layer: those on the device
};

}  // namespace longstride
