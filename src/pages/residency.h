// Which blocks of pages are on the device, and which one leaves when room is needed. Policy alone:
// it knows the order of the step, and moves nothing.
//
// A block is what one layer holds of one chunk. The order in which a step uses blocks is known
// before it starts, so the block that leaves is the one that is needed again last. In a dense model
// all blocks of a layer are needed at its next turn: then as many as fit stay where they are, and
// the others pass through.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace longstride {

struct Block {
  std::int64_t layer = 0, chunk = 0;
  bool operator==(const Block&) const = default;
};

// The blocks of chunks [first_chunk, last_chunk] of a layer, used together. A use's number is its
// place in the step.
struct BlockUse {
  std::int64_t layer = 0, first_chunk = 0, last_chunk = 0;
};

class Residency {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  Residency(std::int64_t layers, std::int64_t chunks);

  // A new sequence, with its uses in order. Nothing may be on the device.
  void begin(std::span<const BlockUse> uses);
  // Use `number` begins, after all before it: until unpin its blocks stay.
  void pin(std::int64_t number);
  void unpin(std::int64_t number);

  // The block is on the device, or its room is taken; and no longer.
  void arrive(Block block);
  void leave(Block block);
  // The first use of a block that has not begun.
  std::int64_t next_use(Block block) const { return next_of(index(block)); }
  // The block on the device that is used again last, where that is after use `than`. Nothing where
  // there is none.
  std::optional<Block> victim(std::int64_t than) const;

 private:
  std::size_t index(Block block) const {
    return static_cast<std::size_t>(block.layer * chunks_ + block.chunk);
  }
  std::int64_t next_of(std::size_t block) const;
  template <class F>
  void for_blocks(const BlockUse& use, const F& f) const;

  struct State {
    bool is_here = false;
    int pins = 0;
    std::size_t next = 0;  // into times_
  };
  std::int64_t chunks_;
  std::vector<BlockUse> uses_;
  std::vector<State> states_;
  // The uses of block i, ascending: times_[offsets_[i]] to times_[offsets_[i + 1] - 1].
  std::vector<std::size_t> offsets_;
  std::vector<std::uint32_t> times_;
  std::set<std::pair<std::int64_t, std::size_t>> here_;  // by next use
};

}  // namespace longstride
