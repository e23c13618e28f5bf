#include "pages/tiered_pages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

const WaitSite kAccessAfterFetch{"pages/access-after-fetch"};        // computing: they have come
const WaitSite kCreateAfterEviction{"pages/create-after-eviction"};  // computing: the slots' last have left
const WaitSite kFetchAfterAccess{"pages/fetch-after-access"};      // from host: nobody computes on the slots
const WaitSite kFetchAfterEviction{"pages/fetch-after-eviction"};  // from host: the slots' last have left
const WaitSite kEvictAfterAccess{"pages/evict-after-access"};      // to host: what is computed on them is done

constexpr std::int32_t kNone = -1;
// Blocks on disk are asked for that many uses before their time, if there are buffers.
constexpr std::int64_t kReadAheadUses = 64;

}  // namespace

TieredPages::TieredPages(Device& device, Mover* mover, const TieredShape& shape,
                         const std::string& what)
    : device_(device),
      mover_(mover),
      shape_(shape),
      chunks_((shape.logical_pages + shape.pages_per_chunk - 1) / shape.pages_per_chunk),
      pool_(device, shape.page_bytes, shape.capacity, what),
      offload_(device, mover,
               {.bytes = shape.page_bytes * shape.pages_per_chunk,
                .most_pieces = shape.pages_per_chunk,
                .what = what,
                .what_on_host = what + " in host memory"},
               shape.away),
      residency_(shape.layers, chunks_),
      slots_(static_cast<std::size_t>(shape.layers),
             std::vector<std::int32_t>(static_cast<std::size_t>(shape.logical_pages), kNone)),
      exists_(static_cast<std::size_t>(shape.layers),
              std::vector<bool>(static_cast<std::size_t>(shape.logical_pages))),
      blocks_(static_cast<std::size_t>(shape.layers * chunks_)),
      slot_fences_(static_cast<std::size_t>(shape.capacity)) {
  LS_CHECK((mover == nullptr) == (shape.away.records() == 0), "{}: {} places off the device", what,
           shape.away.records());
}

PageRun TieredPages::pages_of(std::int64_t chunk) const {
  return {chunk * shape_.pages_per_chunk,
          std::min((chunk + 1) * shape_.pages_per_chunk, shape_.logical_pages)};
}

BlockUse TieredPages::blocks_of(const PageUse& use) const {
  return {use.layer, use.pages.begin / shape_.pages_per_chunk,
          (use.pages.end - 1) / shape_.pages_per_chunk};
}

template <class F>
void TieredPages::for_blocks(const PageUse& use, const F& f) const {
  const BlockUse blocks = blocks_of(use);
  for (std::int64_t chunk = blocks.first_chunk; chunk <= blocks.last_chunk; ++chunk)
    f(Block{use.layer, chunk});
}

void TieredPages::begin(std::vector<PageUse> uses) {
  uses_ = std::move(uses);
  std::vector<BlockUse> blocks;
  blocks.reserve(uses_.size());
  std::int64_t largest = 0;
  for (const PageUse& use : uses_) {
    LS_CHECK(use.layer >= 0 && use.layer < shape_.layers && use.pages.begin >= 0 &&
                 use.pages.size() > 0 && use.pages.end <= shape_.logical_pages,
             "layer {} pages {} to {}", use.layer, use.pages.begin, use.pages.end);
    blocks.push_back(blocks_of(use));
    largest = std::max(largest, use.pages.size());
  }
  residency_.begin(blocks);
  next_ = read_ahead_ = 0;
  // While one use is computed another comes, and one that was before it leaves.
  look_ahead_ = 2 * largest;
}

void TieredPages::enter(std::int64_t number) {
  LS_CHECK(number == next_, "use {} begins, and {} is next", number, next_);
  const PageUse& use = uses_.at(static_cast<std::size_t>(number));
  // None of its blocks makes room for another.
  for_blocks(use, [&](Block block) {
    const bool done = bring(block, use, number);
    LS_CHECK(done, "use {} of {} pages, and room for {}", number, use.pages.size(),
             shape_.capacity);
  });
  residency_.pin(number);
  ++next_;
  for_blocks(use, [&](Block block) {
    BlockState& s = state(block);
    wait(Lane::kCompute, s.fences.of(Lane::kFromHost), kAccessAfterFetch);
    if (use.changes) s.copy_is_right = false;
  });
  if (use.creates) create(use);
  if (mover_ == nullptr) return;
  tell_mover(use);
  look_ahead(number);
}

void TieredPages::leave(std::int64_t number) {
  residency_.unpin(number);
  if (mover_ == nullptr) return;
  const PageUse& use = uses_[static_cast<std::size_t>(number)];
  tell_mover(use);
  const Fence fence = mover_->fence(Lane::kCompute);
  for_blocks(use, [&](Block block) { state(block).fences.set(fence); });
}

void TieredPages::tell_mover(const PageUse& use) {
  for_blocks(use, [&](Block block) {
    for (const OffloadPiece& p : pieces_of(block))
      mover_->computing_on(p.device, p.bytes, use.changes);
  });
}

void TieredPages::look_ahead(std::int64_t number) {
  std::int64_t pages = 0;
  bool room = true;
  for (std::int64_t ahead = number + 1; ahead < static_cast<std::int64_t>(uses_.size()); ++ahead) {
    const PageUse& use = uses_[static_cast<std::size_t>(ahead)];
    pages += use.pages.size();
    if (!room || pages > look_ahead_) break;
    for_blocks(use, [&](Block block) { room = room && bring(block, use, ahead); });
  }
  if (shape_.away.disk_records == 0) return;
  bool buffers = true;
  read_ahead_ = std::max(read_ahead_, number + 1);
  const std::int64_t end =
      std::min(number + kReadAheadUses, static_cast<std::int64_t>(uses_.size()));
  for (; buffers && read_ahead_ < end; ++read_ahead_) {
    for_blocks(uses_[static_cast<std::size_t>(read_ahead_)], [&](Block block) {
      const BlockState& s = state(block);
      if (buffers && s.is_away) buffers = offload_.read_ahead(s.place);
    });
    if (!buffers) break;
  }
}

bool TieredPages::bring(Block block, const PageUse& use, std::int64_t number) {
  const BlockState& s = state(block);
  std::int64_t count = s.is_away ? s.pages : 0;
  if (use.creates) {
    const PageRun all = pages_of(block.chunk);
    for (std::int64_t page = std::max(all.begin, use.pages.begin);
         page < std::min(all.end, use.pages.end); ++page)
      count += !exists(block.layer, page) && slot(block.layer, page) == kNone ? 1 : 0;
  }
  if (count == 0) return true;
  if (!make_room(count, number)) return false;
  const bool was_away = s.is_away;
  take_slots(block, use, count);
  if (was_away) fetch(block);
  return true;
}

bool TieredPages::make_room(std::int64_t pages, std::int64_t number) {
  while (pool_.capacity() - pool_.in_use() < pages) {
    const std::optional<Block> block = residency_.victim(number);
    if (!block) return false;
    evict(*block);
  }
  return true;
}

void TieredPages::take_slots(Block block, const PageUse& use, std::int64_t count) {
  BlockState& s = state(block);
  const PageRun all = pages_of(block.chunk);
  // Attention over long runs likes a use's pages one after another: behind the page before, or
  // where all that follow find room too.
  std::int64_t preferred = -1;
  if (shape_.away.records() == 0) {
    const std::int64_t per_layer = pool_.capacity() / shape_.layers;
    preferred = per_layer == 0 ? -1 : block.layer * per_layer + all.begin % per_layer;
  } else if (all.begin > use.pages.begin && slot(block.layer, all.begin - 1) != kNone) {
    preferred = slot(block.layer, all.begin - 1) + 1;
  }
  std::int64_t at = pool_.find_run(count, std::max(count, use.pages.end - all.begin), preferred);
  const bool was_here = s.slots > 0;
  for (std::int64_t page = all.begin; page < all.end; ++page) {
    const bool wanted = exists(block.layer, page)
                            ? s.is_away
                            : use.creates && page >= use.pages.begin && page < use.pages.end;
    if (!wanted || slot(block.layer, page) != kNone) continue;
    const std::int32_t taken = pool_.take(at);
    at = taken + 1;
    slot(block.layer, page) = taken;
    s.fences.join(slot_fences_[static_cast<std::size_t>(taken)]);
    ++s.slots;
  }
  if (!was_here) residency_.arrive(block);
}

const std::vector<OffloadPiece>& TieredPages::pieces_of(Block block) {
  pieces_.clear();
  const PageRun pages = pages_of(block.chunk);
  for (std::int64_t page = pages.begin; page < pages.end; ++page) {
    const std::int32_t at = slot(block.layer, page);
    if (at == kNone || !exists(block.layer, page)) continue;
    std::byte* const device = pool_.page(at);
    const std::int64_t offset = (page - pages.begin) * shape_.page_bytes;
    if (!pieces_.empty() && pieces_.back().offset + pieces_.back().bytes == offset &&
        pieces_.back().device + pieces_.back().bytes == device)
      pieces_.back().bytes += shape_.page_bytes;
    else
      pieces_.push_back({offset, shape_.page_bytes, device});
  }
  return pieces_;
}

void TieredPages::evict(Block block) {
  BlockState& s = state(block);
  LS_CHECK(mover_ != nullptr, "layer {} chunk {} has to leave, and has nowhere to go", block.layer,
           block.chunk);
  if (s.pages > 0) {
    if (s.place < 0) s.place = take_place();
    if (!s.copy_is_right) {
      wait(Lane::kToHost, s.fences.of(Lane::kCompute), kEvictAfterAccess);
      s.fences.set(offload_.write(s.place, pieces_of(block)));
    }
    s.is_away = s.copy_is_right = true;
  }
  residency_.leave(block);
  give_slots(block);
}

std::int64_t TieredPages::take_place() {
  if (!offload_.has_free()) {
    // A block that is here keeps its place only as long as no other needs one.
    const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                    [](const BlockState& b) { return b.place >= 0 && !b.is_away; });
    LS_CHECK(found != blocks_.end(), "{} places, all of blocks that are away",
             shape_.away.records());
    offload_.give(std::exchange(found->place, -1));
    found->copy_is_right = false;
  }
  return offload_.take();
}

void TieredPages::give_slots(Block block) {
  BlockState& s = state(block);
  const PageRun pages = pages_of(block.chunk);
  for (std::int64_t page = pages.begin; page < pages.end; ++page)
    if (std::int32_t& at = slot(block.layer, page); at != kNone) {
      slot_fences_[static_cast<std::size_t>(at)] = s.fences;
      pool_.give(at);
      at = kNone;
    }
  s.slots = 0;
  s.fences = {};
}

void TieredPages::fetch(Block block) {
  BlockState& s = state(block);
  wait(Lane::kFromHost, s.fences.of(Lane::kCompute), kFetchAfterAccess);
  wait(Lane::kFromHost, s.fences.of(Lane::kToHost), kFetchAfterEviction);
  s.fences.set(offload_.read(s.place, pieces_of(block)));
  s.is_away = false;
}

void TieredPages::create(const PageUse& use) {
  PageRun fresh{0, 0};  // slots that lie side by side are zeroed at once
  const auto zero = [&] {
    if (use.zeroed && fresh.size() > 0)
      device_.zero(pool_.page(static_cast<std::int32_t>(fresh.begin)),
                   fresh.size() * pool_.page_bytes());
  };
  for_blocks(use, [&](Block block) {
    BlockState& s = state(block);
    const PageRun all = pages_of(block.chunk);
    bool waited = false;
    for (std::int64_t page = std::max(all.begin, use.pages.begin);
         page < std::min(all.end, use.pages.end); ++page) {
      if (exists(block.layer, page)) {
        LS_CHECK(!use.all_new, "layer {} page {} exists already", block.layer, page);
        continue;
      }
      if (!std::exchange(waited, true))
        wait(Lane::kCompute, s.fences.of(Lane::kToHost), kCreateAfterEviction);
      exists_[static_cast<std::size_t>(block.layer)][static_cast<std::size_t>(page)] = true;
      ++s.pages;
      s.copy_is_right = false;
      const std::int32_t at = slot(block.layer, page);
      if (at != fresh.end) {
        zero();
        fresh = {at, at};
      }
      ++fresh.end;
    }
  });
  zero();
}

void TieredPages::release(std::int64_t layer, PageRun run) {
  const std::int64_t per = shape_.pages_per_chunk;
  for (std::int64_t chunk = run.begin / per; chunk * per < run.end; ++chunk) {
    const Block block{layer, chunk};
    BlockState& s = state(block);
    if (s.slots > 0) {
      residency_.leave(block);
      give_slots(block);
    }
    if (s.place >= 0) offload_.give(s.place);
    s = {};
    const PageRun pages = pages_of(chunk);
    for (std::int64_t page = pages.begin; page < pages.end; ++page)
      exists_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(page)] = false;
  }
}

void TieredPages::release_all() {
  offload_.finish();
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
    release(layer, {0, shape_.logical_pages});
}

}  // namespace longstride
