// What a caching allocator would need for the same requests: a model of PyTorch's for CUDA, with
// its default settings, to compare placements with. No memory is allocated.
//
// Requests are rounded to 512 bytes. Those up to 1 MiB come from segments of 2 MiB, others below
// 10 MiB from segments of 20 MiB, and larger ones get a segment rounded to 2 MiB. The smallest
// free block that is large enough serves a request and is split if the rest is worth keeping; free
// neighbours in a segment are merged. Segments are never returned.
#pragma once

#include <array>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "model/workspace.h"

namespace longstride {

struct StepPlan;

class AllocatorModel {
 public:
  using Block = std::size_t;

  // `bytes` above 0.
  Block allocate(std::int64_t bytes);
  void free(Block block);

  std::int64_t allocated() const { return allocated_; }  // in use, rounded
  std::int64_t reserved() const { return reserved_; }    // of all segments
  std::int64_t peak_allocated() const { return peak_allocated_; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Stretch {
    std::int64_t address = 0, bytes = 0;
    bool small = false, in_use = false;
    Block before = kNone, after = kNone;  // in the same segment
  };
  using Free = std::set<std::tuple<std::int64_t, std::int64_t, Block>>;  // bytes, address, block

  Free& pool(bool small) { return free_[small ? 0 : 1]; }
  void add_free(Block block);
  void remove_free(Block block);
  Block add_segment(std::int64_t bytes, bool small);
  // Joins a block with the free one after it.
  void absorb_next(Block block);

  std::vector<Stretch> stretches_;
  std::vector<Block> unused_;  // numbers of blocks that were joined with others
  std::array<Free, 2> free_;
  std::int64_t next_address_ = 0, allocated_ = 0, reserved_ = 0, peak_allocated_ = 0;
};

struct AllocatorUse {
  std::int64_t reserved = 0, allocated = 0;  // the most at one time
  double fragmentation() const {
    return reserved > 0 ? 1 - static_cast<double>(allocated) / static_cast<double>(reserved) : 0;
  }
};

// Steps made of these episodes, one after the other, until a step reserves nothing more. Every
// trace ends with nothing in use.
AllocatorUse simulate_allocator(std::span<const WorkspaceTrace* const> episodes);
// The steps of a plan: what its workspace would be with such an allocator.
AllocatorUse simulate_allocator(const StepPlan& plan);

}  // namespace longstride
