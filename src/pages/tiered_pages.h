// The pages of one kind (keys and values, or their gradients) of all layers, of which the device
// may hold only some: a table from logical pages to slots of a device pool, and an offload store
// for evicted groups. Page groups (pages/page_group.h) move as a whole.
//
// While one access is computed, the groups of the following ones are prefetched, and groups whose
// next access is far away are evicted. A group whose offloaded copy is still valid is not written
// again.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/offload_store.h"
#include "pages/page_pool.h"
#include "pages/residency.h"

namespace longstride {

struct TieredShape {
  std::int64_t layers = 0, logical_pages = 0, pages_per_group = 1, page_bytes = 0;
  std::int64_t capacity = 0;  // pages on the device
  OffloadCapacity offload = {};
};

class TieredPages {
 public:
  // `mover` outlives it; null if nothing is offloaded.
  TieredPages(Device& device, Mover* mover, const TieredShape& shape, const std::string& what);

  // Begins a sequence with these accesses. Requires that the previous one has been released.
  void begin(AccessList accesses);
  // Sets the pages of a late access before it begins. They can be prefetched from now on.
  void resolve(std::int64_t number, const PageSet& pages);
  // Begins access `number`; accesses begin in order, none is skipped. Its pages are on the device
  // for work queued from now on.
  void enter(std::int64_t number);
  // Ends the access: all work on its pages has been queued.
  void leave(std::int64_t number);
  // Frees pages, which no current access may have.
  void release(std::int64_t layer, PageRun run);
  // Frees all pages. Requires that the mover has finished.
  void release_all();

  const PagePool& pool() const { return pool_; }
  PageSet pages_of(std::int64_t number) const { return residency_.accesses().at(number).pages; }
  const std::int32_t* table(std::int64_t layer) const {
    return slots_.at(static_cast<std::size_t>(layer)).data();
  }
  const OffloadStore& offload() const { return offload_; }

 private:
  struct GroupState {
    std::int64_t pages = 0;      // that exist
    std::int64_t slots = 0;      // on the device; some may be for pages not created yet
    std::int64_t place = -1;     // in the offload store; -1: none
    bool is_offloaded = false;   // its pages are not on the device
    bool copy_is_right = false;  // the offloaded copy is valid
    bool is_listed = false;      // in `placed_`
    FenceSet fences;             // of its slots
  };
  const GroupState& state(PageGroup group) const {
    return groups_.at(static_cast<std::size_t>(group.layer * groups_per_layer_ + group.index));
  }
  GroupState& state(PageGroup group) {
    return groups_.at(static_cast<std::size_t>(group.layer * groups_per_layer_ + group.index));
  }
  std::int32_t& slot(std::int64_t layer, std::int64_t page) {
    return slots_.at(static_cast<std::size_t>(layer)).at(static_cast<std::size_t>(page));
  }
  std::int32_t slot(std::int64_t layer, std::int64_t page) const {
    return slots_.at(static_cast<std::size_t>(layer)).at(static_cast<std::size_t>(page));
  }
  bool exists(std::int64_t layer, std::int64_t page) const {
    return exists_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(page)];
  }
  PageRun pages_of(PageGroup group) const;
  template <class F>
  void for_groups_of(const PageAccess& access, const F& f) const;
  // Takes the missing slots for the pages of access `number`, and fetches its groups that are
  // offloaded: as many of them, in order, as fit if only groups accessed later are evicted. All
  // evictions and all fetches are one batch each. False if some did not fit.
  bool bring(const PageAccess& access, std::int64_t number);
  // Slots that bringing the group takes.
  std::int64_t missing_slots(PageGroup group, const PageAccess& access) const;
  std::int64_t preferred_slot(PageGroup group, const PageAccess& access);
  void take_slots(PageGroup group, const PageAccess& access, std::int64_t count);
  void evict(std::span<const PageGroup> groups);
  void fetch(std::span<const PageGroup> groups);
  std::int64_t take_place();
  // Begins a batch of copies, and adds a group's pieces to it.
  void begin_batch();
  void add_to_batch(PageGroup group);
  std::span<const OffloadRecord> batch();
  void give_slots(PageGroup group, PageRun pages);
  void create(const PageAccess& access);
  void prefetch(std::int64_t number);
  void read_ahead(std::int64_t number);
  void tell_mover(const PageAccess& access);
  void wait(Lane lane, Fence fence, const WaitSite& site) {
    if (mover_ != nullptr) mover_->wait(lane, fence, site);
  }
  // The runs of a group's existing pages that are contiguous on the device.
  const std::vector<OffloadPiece>& pieces_of(PageGroup group);

  Device& device_;
  Mover* mover_;
  TieredShape shape_;
  std::int64_t groups_per_layer_;
  PagePool pool_;
  OffloadStore offload_;
  Residency residency_;
  std::int64_t next_ = 0;                         // the next access to begin
  std::int64_t read_ahead_ = 0;                   // groups on disk are being read up to this access
  std::vector<std::vector<std::int32_t>> slots_;  // per layer and logical page; -1: none
  std::vector<std::vector<bool>> exists_;         // likewise; on the device or offloaded
  std::vector<GroupState> groups_;                // by layer, then group
  std::vector<FenceSet> slot_fences_;             // per slot: of the pages it held before
  std::vector<OffloadPiece> pieces_;
  // Groups that were fetched and may still have a place off the device; some no longer do.
  std::vector<PageGroup> placed_;
  std::vector<PageGroup> bringing_, evicting_, fetching_;
  // A batch of copies: its groups, where each one's pieces end, and the records made of them.
  std::vector<PageGroup> batch_groups_;
  std::vector<std::size_t> batch_ends_;
  std::vector<OffloadPiece> batch_pieces_;
  std::vector<OffloadRecord> batch_;
};

}  // namespace longstride
