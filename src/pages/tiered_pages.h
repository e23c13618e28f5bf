// The pages of one kind (keys and values, or their gradients) of all layers, of which the device
// may hold a part: a table from logical pages to slots of a pool on the device, and places off it
// for the blocks that had to leave. Blocks (a layer's pages of one chunk) come and go whole, before
// the task that uses them. A block whose copy off the device is still right is not written again.
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pages/away_blocks.h"
#include "pages/page_pool.h"
#include "pages/residency.h"
#include "schedule/layout.h"

namespace longstride {

struct TieredShape {
  std::int64_t layers = 0, logical_pages = 0, pages_per_chunk = 1, page_bytes = 0;
  std::int64_t capacity = 0;  // pages on the device
  AwayRoom away = {};
};

class TieredPages {
 public:
  TieredPages(Device& device, const TieredShape& shape, const std::string& what);

  // A new sequence; nothing is left of the last one.
  void begin(std::vector<std::vector<BlockUse>> uses) { residency_.begin(std::move(uses)); }

  // What the task at `position` does with a layer: afterwards the blocks of `used` that exist are
  // on the device, and so are new pages for all of `created` (within `used`).
  struct Access {
    std::int64_t position = 0, layer = 0;
    PageRun used, created;
    bool existing_may_be_created = false;  // else a page that exists must not be created
    bool zeroed = false;                   // new pages
    bool changes = false;                  // the task writes to the blocks it uses
  };
  void enter(const Access& access);
  // Ends pages; whole chunks.
  void release(std::int64_t layer, PageRun run);
  void release_all();

  const PagePool& pool() const { return pool_; }
  const std::int32_t* table(std::int64_t layer) const {
    return slots_.at(static_cast<std::size_t>(layer)).data();
  }
  const AwayBlocks::Moved& moved() const { return away_.moved(); }

 private:
  struct BlockState {
    std::int64_t pages = 0;   // that exist
    std::int64_t place = -1;  // off the device; -1: never left
    bool is_away = false, copy_is_right = false;
  };
  BlockState& state(Block block) {
    return blocks_.at(static_cast<std::size_t>(block.layer * chunks_ + block.chunk));
  }
  std::int32_t& slot(std::int64_t layer, std::int64_t page) {
    return slots_.at(static_cast<std::size_t>(layer)).at(static_cast<std::size_t>(page));
  }
  PageRun pages_of(std::int64_t chunk) const;
  // The slot that a layer's page gets where it is free: a layer's pages then lie one after another,
  // as attention over long runs likes them.
  std::int64_t home(std::int64_t layer, std::int64_t page) const;
  void make_room(std::int64_t pages, const Access& access);
  void evict(Block block);
  void fetch(Block block);
  void create(const Access& access);
  // f(first page, count, address) for the runs of a block's existing pages that lie together.
  template <class F>
  void for_runs(Block block, const F& f);

  Device& device_;
  TieredShape shape_;
  std::int64_t chunks_;
  PagePool pool_;
  AwayBlocks away_;
  Residency residency_;
  std::vector<std::vector<std::int32_t>> slots_;  // per layer and logical page; -1: not here
  std::vector<std::vector<bool>> exists_;         // likewise, here or away
  std::vector<BlockState> blocks_;                // by layer, then chunk
};

}  // namespace longstride
