// The pages of one kind (keys and values, or their gradients) of all layers, of which the device
// may hold a part: a table from logical pages to slots of a pool on the device, and places off it
// for the blocks that had to leave. Blocks (a layer's pages of one chunk) come and go whole. All
// uses of a step are known at its beginning: while one is computed, the blocks of those that follow
// come, and what is not needed soon leaves. A block whose copy off the device is still right is not
// written again. Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/offload_store.h"
#include "pages/page_pool.h"
#include "pages/residency.h"
#include "schedule/layout.h"

namespace longstride {

struct TieredShape {
  std::int64_t layers = 0, logical_pages = 0, pages_per_chunk = 1, page_bytes = 0;
  std::int64_t capacity = 0;  // pages on the device
  OffloadCapacity away = {};
};

// Pages of a layer that are computed on together.
struct PageUse {
  std::int64_t layer = 0;
  PageRun pages;
  bool creates = false;  // those that do not exist; their content is undefined, or zero
  bool all_new = false;  // none may exist
  bool zeroed = false;
  bool changes = false;
};

class TieredPages {
 public:
  // `mover` outlives it; null where there are no places off the device.
  TieredPages(Device& device, Mover* mover, const TieredShape& shape, const std::string& what);

  // A new sequence with all its uses, in order; nothing is left of the last one.
  void begin(std::vector<PageUse> uses);
  // Use `number` begins: one after another, all of them. Its pages are on the device for what is
  // computed from now on.
  void enter(std::int64_t number);
  // What is computed on it has been queued.
  void leave(std::int64_t number);
  // Ends pages; whole chunks, of no use that is under way.
  void release(std::int64_t layer, PageRun run);
  // Ends everything. The mover has finished.
  void release_all();

  const PagePool& pool() const { return pool_; }
  const std::int32_t* table(std::int64_t layer) const {
    return slots_.at(static_cast<std::size_t>(layer)).data();
  }
  const OffloadStore& offload() const { return offload_; }

 private:
  struct BlockState {
    std::int64_t pages = 0;   // that exist
    std::int64_t slots = 0;   // on the device; some may wait for pages that are going to exist
    std::int64_t place = -1;  // off the device; -1: never left
    bool is_away = false;     // its pages are not here
    bool copy_is_right = false;
    FenceSet fences;  // of its slots
  };
  BlockState& state(Block block) {
    return blocks_.at(static_cast<std::size_t>(block.layer * chunks_ + block.chunk));
  }
  std::int32_t& slot(std::int64_t layer, std::int64_t page) {
    return slots_.at(static_cast<std::size_t>(layer)).at(static_cast<std::size_t>(page));
  }
  bool exists(std::int64_t layer, std::int64_t page) const {
    return exists_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(page)];
  }
  PageRun pages_of(std::int64_t chunk) const;
  BlockUse blocks_of(const PageUse& use) const;
  template <class F>
  void for_blocks(const PageUse& use, const F& f) const;
  // Slots for what use `number` needs of a block and has not; the block is fetched where it is
  // away. False, with nothing done, where only what is needed before leaves room for it.
  bool bring(Block block, const PageUse& use, std::int64_t number);
  bool make_room(std::int64_t pages, std::int64_t number);
  void take_slots(Block block, const PageUse& use, std::int64_t count);
  void evict(Block block);
  std::int64_t take_place();
  void give_slots(Block block);
  void fetch(Block block);
  void create(const PageUse& use);
  void look_ahead(std::int64_t number);
  void tell_mover(const PageUse& use);
  void wait(Lane lane, Fence fence, const WaitSite& site) {
    if (mover_ != nullptr) mover_->wait(lane, fence, site);
  }
  // The runs of a block's existing pages that lie together.
  const std::vector<OffloadPiece>& pieces_of(Block block);

  Device& device_;
  Mover* mover_;
  TieredShape shape_;
  std::int64_t chunks_;
  PagePool pool_;
  OffloadStore offload_;
  Residency residency_;
  std::vector<PageUse> uses_;
  std::int64_t next_ = 0;        // use
  std::int64_t look_ahead_ = 0;  // pages of uses to come that are brought before their time
  std::int64_t read_ahead_ = 0;  // use up to which blocks on disk are being read
  std::vector<std::vector<std::int32_t>> slots_;  // per layer and logical page; -1: not here
  std::vector<std::vector<bool>> exists_;         // likewise, here or away
  std::vector<BlockState> blocks_;                // by layer, then chunk
  std::vector<FenceSet> slot_fences_;             // per slot: what it held before
  std::vector<OffloadPiece> pieces_;
};

}  // namespace longstride
