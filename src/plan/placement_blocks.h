// A trace on two levels: the tensors inside a repeated block on their own, and the blocks with
// everything else.
#pragma once

#include "plan/placement.h"
#include "plan/repeated_blocks.h"

namespace longstride {

// The requests at these indices, in this order.
WorkspaceTrace part_of(const WorkspaceTrace& trace, const std::vector<std::size_t>& requests);

// Requests that are alive in the same largest sets of live ones, as one: of each group the sum of
// the bytes.
struct MergedTrace {
  WorkspaceTrace trace;
  std::vector<std::vector<std::size_t>> groups;  // of the original requests
};
MergedTrace merge_equal_lifetimes(const WorkspaceTrace& trace);

// Use: place each block's inside, then the outside, then join. The trace must outlive it.
class TwoLevels {
 public:
  explicit TwoLevels(const WorkspaceTrace& trace);
  bool any() const { return !blocks_.empty(); }
  std::size_t blocks() const { return blocks_.size(); }
  // The tensors of one copy.
  WorkspaceTrace inside(std::size_t block) const;
  void place_block(std::size_t block, Placement placement);
  // After all blocks are placed: each copy of a block is one request; the rest follow, those of
  // equal lifetimes as one.
  const WorkspaceTrace& outside();
  // Addresses for the whole trace. `outside` places the requests of outside().
  Placement join(const Placement& outside) const;

 private:
  const WorkspaceTrace& trace_;
  std::vector<RepeatedBlock> blocks_;
  std::vector<Placement> inside_;
  // Of the outside before merging: each stands for a copy of a block, or for one request.
  struct Part {
    std::size_t block = 0, copy = 0, request = 0;
    bool is_block = false;
  };
  std::vector<Part> parts_;
  WorkspaceTrace unmerged_;
  MergedTrace outside_;
};

}  // namespace longstride
