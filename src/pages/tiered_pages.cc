#include "pages/tiered_pages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

// Compute lane: waits for the fetch of its pages; before it creates pages, for the eviction of the
// pages that their slots held.
const WaitSite kAccessAfterFetch{"pages/access-after-fetch"};
const WaitSite kCreateAfterEviction{"pages/create-after-eviction"};
// Lane from the host: waits for the last access to the pages that the slots held, and for their
// eviction.
const WaitSite kFetchAfterAccess{"pages/fetch-after-access"};
const WaitSite kFetchAfterEviction{"pages/fetch-after-eviction"};
// Lane to the host: waits for computing on the pages.
const WaitSite kEvictAfterAccess{"pages/evict-after-access"};

constexpr std::int32_t kNone = -1;
// Late accesses have no pages until they are resolved: how many accesses prefetch looks at.
constexpr std::int64_t kPrefetchAccesses = 64;
// Groups on disk are read this many accesses ahead, if there are buffers.
constexpr std::int64_t kReadAheadAccesses = 64;

}  // namespace

TieredPages::TieredPages(Device& device, Mover* mover, const TieredShape& shape,
                         const std::string& what)
    : device_(device),
      mover_(mover),
      shape_(shape),
      groups_per_layer_((shape.logical_pages + shape.pages_per_group - 1) / shape.pages_per_group),
      pool_(device, shape.page_bytes, shape.capacity, what),
      offload_(device, mover,
               {.bytes = shape.page_bytes * shape.pages_per_group,
                .most_pieces = shape.pages_per_group,
                .what = what,
                .what_on_host = what + " in host memory"},
               shape.offload),
      residency_(shape.layers, shape.logical_pages, shape.pages_per_group),
      slots_(static_cast<std::size_t>(shape.layers),
             std::vector<std::int32_t>(static_cast<std::size_t>(shape.logical_pages), kNone)),
      exists_(static_cast<std::size_t>(shape.layers),
              std::vector<bool>(static_cast<std::size_t>(shape.logical_pages))),
      groups_(static_cast<std::size_t>(shape.layers * groups_per_layer_)),
      slot_fences_(static_cast<std::size_t>(shape.capacity)) {
  LS_CHECK((mover == nullptr) == (shape.offload.records() == 0), "{}: {} places off the device",
           what, shape.offload.records());
}

PageRun TieredPages::pages_of(PageGroup group) const {
  return {group.index * shape_.pages_per_group,
          std::min((group.index + 1) * shape_.pages_per_group, shape_.logical_pages)};
}

template <class F>
void TieredPages::for_groups_of(const PageAccess& access, const F& f) const {
  for_groups(access.pages, shape_.pages_per_group, [&](std::int64_t index) {
    f(PageGroup{access.layer, index});
  });
}

void TieredPages::begin(AccessList accesses) {
  LS_CHECK(accesses.pages_end() <= shape_.logical_pages, "page {} of {}", accesses.pages_end(),
           shape_.logical_pages);
  residency_.begin(std::move(accesses));
  for (const PageGroup group : std::exchange(placed_, {})) state(group).is_listed = false;
  next_ = read_ahead_ = 0;
}

void TieredPages::resolve(std::int64_t number, const PageSet& pages) {
  LS_CHECK(pages.hull().end <= shape_.logical_pages, "page {} of {}", pages.hull().end,
           shape_.logical_pages);
  residency_.resolve(number, pages);
  read_ahead_ = std::min(read_ahead_, number);
  if (mover_ == nullptr || next_ == 0) return;
  prefetch(next_ - 1);
  read_ahead(next_ - 1);
}

void TieredPages::enter(std::int64_t number) {
  LS_CHECK(number == next_, "access {} begins, and {} is next", number, next_);
  const PageAccess access = residency_.accesses().at(number);
  const bool done = bring(access, number);
  LS_CHECK(done, "access {} of {} pages, and a capacity of {}", number, access.pages.size(),
           shape_.capacity);
  residency_.pin(number);
  ++next_;
  for_groups_of(access, [&](PageGroup group) {
    GroupState& s = state(group);
    wait(Lane::kCompute, s.fences.of(Lane::kFromHost), kAccessAfterFetch);
    if (access.changes) s.copy_is_right = false;
  });
  if (access.creates) create(access);
  if (mover_ == nullptr) return;
  tell_mover(access);
  prefetch(number);
  read_ahead(number);
}

void TieredPages::leave(std::int64_t number) {
  residency_.unpin(number);
  if (mover_ == nullptr) return;
  const PageAccess access = residency_.accesses().at(number);
  tell_mover(access);
  const Fence fence = mover_->fence(Lane::kCompute);
  for_groups_of(access, [&](PageGroup group) { state(group).fences.set(fence); });
}

void TieredPages::tell_mover(const PageAccess& access) {
  for_groups_of(access, [&](PageGroup group) {
    for (const OffloadPiece& p : pieces_of(group))
      mover_->computing_on(p.device, p.bytes, access.changes);
  });
}

void TieredPages::prefetch(std::int64_t number) {
  const AccessList& accesses = residency_.accesses();
  // While one access is computed, the next is fetched and the previous one is evicted. Accesses to
  // selected pages differ in how many they fetch: more of them are fetched ahead, where they fit.
  const std::int64_t least = 2 * accesses.largest(),
                     most = accesses.any_late() ? std::clamp(pool_.capacity() / 4, least, 4 * least)
                                                : least;
  std::int64_t pages = 0;
  bool fits = true;
  const std::int64_t end = std::min(number + 1 + kPrefetchAccesses, accesses.size());
  for (std::int64_t ahead = number + 1; fits && ahead < end; ++ahead) {
    const PageAccess access = accesses.at(ahead);
    pages += access.pages.size();
    if (pages > most) break;
    fits = bring(access, ahead);
  }
}

void TieredPages::read_ahead(std::int64_t number) {
  if (shape_.offload.disk_records == 0) return;
  const AccessList& accesses = residency_.accesses();
  read_ahead_ = std::max(read_ahead_, number + 1);
  const std::int64_t end = std::min(number + kReadAheadAccesses, accesses.size());
  for (; read_ahead_ < end; ++read_ahead_) {
    bool buffers = true;
    for_groups_of(accesses.at(read_ahead_), [&](PageGroup group) {
      const GroupState& s = state(group);
      if (buffers && s.is_offloaded) buffers = offload_.read_ahead(s.place);
    });
    if (!buffers) break;
  }
}

std::int64_t TieredPages::missing_slots(PageGroup group, const PageAccess& access) const {
  const GroupState& s = state(group);
  std::int64_t count = s.is_offloaded ? s.pages : 0;
  if (access.creates)
    access.pages.for_runs_in(pages_of(group), [&](PageRun run) {
      for (std::int64_t page = run.begin; page < run.end; ++page)
        count += !exists(group.layer, page) && slot(group.layer, page) == kNone ? 1 : 0;
    });
  return count;
}

bool TieredPages::bring(const PageAccess& access, std::int64_t number) {
  bringing_.clear();
  evicting_.clear();
  std::int64_t free = pool_.capacity() - pool_.in_use();
  bool fits = true;
  // None of the access's groups is evicted for another one of them.
  for_groups_of(access, [&](PageGroup group) {
    const std::int64_t count = fits ? missing_slots(group, access) : 0;
    if (count == 0) return;
    while (free < count) {
      const std::optional<PageGroup> victim = residency_.victim(number);
      if (!victim) {
        fits = false;
        return;
      }
      residency_.leave(*victim);
      free += state(*victim).slots;
      evicting_.push_back(*victim);
    }
    free -= count;
    bringing_.push_back(group);
  });
  if (!evicting_.empty()) evict(evicting_);
  fetching_.clear();
  for (const PageGroup group : bringing_) {
    if (state(group).is_offloaded) fetching_.push_back(group);
    take_slots(group, access, missing_slots(group, access));
  }
  if (!fetching_.empty()) fetch(fetching_);
  return fits;
}

// Attention is faster if an access's pages are in consecutive slots: prefers the slot after the
// preceding page's. -1: no preference, so find_run looks for a run for all pages that follow.
std::int64_t TieredPages::preferred_slot(PageGroup group, const PageAccess& access) {
  const PageRun all = pages_of(group);
  if (shape_.offload.records() == 0) {
    // A group created by several accesses continues where the last one ended.
    const std::int64_t begin = access.pages.hull().begin;
    if (begin > all.begin && slot(group.layer, begin - 1) != kNone)
      return slot(group.layer, begin - 1) + 1;
    const std::int64_t per_layer = pool_.capacity() / shape_.layers;
    return per_layer == 0 ? -1 : group.layer * per_layer + all.begin % per_layer;
  }
  if (all.begin > access.pages.hull().begin && slot(group.layer, all.begin - 1) != kNone)
    return slot(group.layer, all.begin - 1) + 1;
  return -1;
}

void TieredPages::take_slots(PageGroup group, const PageAccess& access, std::int64_t count) {
  GroupState& s = state(group);
  const PageRun all = pages_of(group);
  // A search for a run of slots is worth it for many pages only.
  const std::int64_t preferred = preferred_slot(group, access);
  std::int64_t at =
      shape_.pages_per_group == 1
          ? preferred
          : pool_.find_run(count, std::max(count, access.pages.hull().end - all.begin), preferred);
  const bool was_here = s.slots > 0;
  for (std::int64_t page = all.begin; page < all.end; ++page) {
    const bool wanted =
        exists(group.layer, page) ? s.is_offloaded : access.creates && access.pages.contains(page);
    if (!wanted || slot(group.layer, page) != kNone) continue;
    const std::int32_t taken = pool_.take(at);
    at = taken + 1;
    slot(group.layer, page) = taken;
    s.fences.join(slot_fences_[static_cast<std::size_t>(taken)]);
    ++s.slots;
  }
  if (!was_here) residency_.arrive(group);
}

const std::vector<OffloadPiece>& TieredPages::pieces_of(PageGroup group) {
  pieces_.clear();
  const PageRun pages = pages_of(group);
  for (std::int64_t page = pages.begin; page < pages.end; ++page) {
    const std::int32_t at = slot(group.layer, page);
    if (at == kNone || !exists(group.layer, page)) continue;
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

void TieredPages::begin_batch() {
  batch_groups_.clear();
  batch_ends_.clear();
  batch_pieces_.clear();
}

void TieredPages::add_to_batch(PageGroup group) {
  const std::vector<OffloadPiece>& pieces = pieces_of(group);
  batch_pieces_.insert(batch_pieces_.end(), pieces.begin(), pieces.end());
  batch_groups_.push_back(group);
  batch_ends_.push_back(batch_pieces_.size());
}

std::span<const OffloadRecord> TieredPages::batch() {
  batch_.clear();
  const std::span<const OffloadPiece> all = batch_pieces_;
  for (std::size_t i = 0, begin = 0; i < batch_groups_.size(); begin = batch_ends_[i++])
    batch_.push_back({state(batch_groups_[i]).place, all.subspan(begin, batch_ends_[i] - begin)});
  return batch_;
}

// The groups have left `residency_`.
void TieredPages::evict(std::span<const PageGroup> groups) {
  LS_CHECK(mover_ != nullptr, "{} groups are evicted, and have nowhere to go", groups.size());
  FenceSet before;
  begin_batch();
  for (const PageGroup group : groups) {
    GroupState& s = state(group);
    if (s.pages == 0) continue;
    if (s.place < 0) s.place = take_place();
    if (!s.copy_is_right) {
      before.join(s.fences);
      add_to_batch(group);
    }
    s.is_offloaded = s.copy_is_right = true;
  }
  if (!batch_groups_.empty()) {
    wait(Lane::kToHost, before.of(Lane::kCompute), kEvictAfterAccess);
    offload_.write_all(
        batch(), [&](std::size_t i, Fence fence) { state(batch_groups_[i]).fences.set(fence); });
  }
  for (const PageGroup group : groups) give_slots(group, pages_of(group));
}

std::int64_t TieredPages::take_place() {
  // A group on the device gives up its place if another group needs one.
  while (!offload_.has_free()) {
    LS_CHECK(!placed_.empty(), "{} places, all of groups that are offloaded",
             shape_.offload.records());
    GroupState& s = state(placed_.back());
    placed_.pop_back();
    s.is_listed = false;
    if (s.place < 0 || s.is_offloaded) continue;
    offload_.give(std::exchange(s.place, -1));
    s.copy_is_right = false;
  }
  return offload_.take();
}

void TieredPages::give_slots(PageGroup group, PageRun pages) {
  GroupState& s = state(group);
  for (std::int64_t page = pages.begin; page < pages.end; ++page)
    if (std::int32_t& at = slot(group.layer, page); at != kNone) {
      slot_fences_[static_cast<std::size_t>(at)] = s.fences;
      pool_.give(at);
      at = kNone;
      --s.slots;
    }
  if (s.slots == 0) s.fences = {};
}

void TieredPages::fetch(std::span<const PageGroup> groups) {
  FenceSet before;
  begin_batch();
  for (const PageGroup group : groups) {
    before.join(state(group).fences);
    add_to_batch(group);
  }
  wait(Lane::kFromHost, before.of(Lane::kCompute), kFetchAfterAccess);
  wait(Lane::kFromHost, before.of(Lane::kToHost), kFetchAfterEviction);
  offload_.read_all(batch(), [&](std::size_t i, Fence fence) {
    GroupState& s = state(batch_groups_[i]);
    s.fences.set(fence);
    s.is_offloaded = false;
    if (!std::exchange(s.is_listed, true)) placed_.push_back(batch_groups_[i]);
  });
}

void TieredPages::create(const PageAccess& access) {
  PageRun fresh{0, 0};  // adjacent slots are zeroed by one call
  const auto zero = [&] {
    if (access.zeroed && fresh.size() > 0)
      device_.zero(pool_.page(static_cast<std::int32_t>(fresh.begin)),
                   fresh.size() * pool_.page_bytes());
  };
  for_groups_of(access, [&](PageGroup group) {
    GroupState& s = state(group);
    bool waited = false;
    const auto add = [&](std::int64_t page) {
      if (exists(group.layer, page)) {
        LS_CHECK(!access.all_new, "layer {} page {} exists already", group.layer, page);
        return;
      }
      if (!std::exchange(waited, true))
        wait(Lane::kCompute, s.fences.of(Lane::kToHost), kCreateAfterEviction);
      exists_[static_cast<std::size_t>(group.layer)][static_cast<std::size_t>(page)] = true;
      ++s.pages;
      s.copy_is_right = false;
      const std::int32_t at = slot(group.layer, page);
      if (at != fresh.end) {
        zero();
        fresh = {at, at};
      }
      ++fresh.end;
    };
    access.pages.for_runs_in(pages_of(group), [&](PageRun run) {
      for (std::int64_t page = run.begin; page < run.end; ++page) add(page);
    });
  });
  zero();
}

void TieredPages::release(std::int64_t layer, PageRun run) {
  for_groups(run, shape_.pages_per_group, [&](std::int64_t index) {
    const PageGroup group{layer, index};
    GroupState& s = state(group);
    const PageRun all = pages_of(group),
                  pages{std::max(all.begin, run.begin), std::min(all.end, run.end)};
    for (std::int64_t page = pages.begin; page < pages.end; ++page) {
      s.pages -= exists(layer, page) ? 1 : 0;
      exists_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(page)] = false;
    }
    give_slots(group, pages);
    // A failed eviction may have left it already.
    if (s.slots == 0 && residency_.is_here(group)) residency_.leave(group);
    if (s.pages > 0 || s.slots > 0) return;  // other pages of the group remain
    if (s.place >= 0) offload_.give(s.place);
    s = {};
  });
}

void TieredPages::release_all() {
  offload_.finish();
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
    release(layer, {0, shape_.logical_pages});
}

}  // namespace longstride
