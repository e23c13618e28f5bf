// Which page groups are on the device, and which one is evicted when capacity is needed. Policy
// alone: it knows the order of the step, and moves nothing.
//
// The order of a step's accesses is known before it starts, so the group that leaves is the one
// whose next access is farthest (Belady). In a dense model all groups of a layer are accessed at
// its next turn: then as many as fit stay where they are, and the others pass through.
//
// A late access counts as accessing nothing until it is resolved. To count it as accessing all
// pages of its layer would make them look equally near and hide their real order; a group that is
// evicted for that costs a copy, and changes no result.
//
// Per group it holds its next access alone, and finds the one behind that when it begins: it goes
// on in the list where it has stopped. Memory does not grow with accesses times groups.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "pages/access_list.h"
#include "pages/page_group.h"

namespace longstride {

class Residency {
 public:
  static constexpr std::int64_t kNever = AccessList::kNever;

  Residency(std::int64_t layers, std::int64_t logical_pages, std::int64_t pages_per_group);

  // A new sequence, with its accesses. Nothing may be on the device.
  void begin(AccessList accesses);
  const AccessList& accesses() const { return accesses_; }
  // The pages of a late access that has not begun.
  void resolve(std::int64_t number, const PageSet& pages);
  // Access `number` begins, after all before it: until unpin its groups stay.
  void pin(std::int64_t number);
  void unpin(std::int64_t number);

  // The group is on the device, or slots for it are taken; and no longer.
  void arrive(PageGroup group);
  void leave(PageGroup group);
  // The first access to a group that has not begun.
  std::int64_t next_access(PageGroup group) const { return states_[index(group)].next.number; }
  // The group on the device whose next access is last, where that is after access `than`. Nothing
  // where there is none.
  std::optional<PageGroup> victim(std::int64_t than) const;

  std::int64_t bytes() const;  // of memory

 private:
  struct State {
    AccessList::Found next;
    std::int32_t pins = 0;
    bool is_here = false;
  };
  std::size_t index(PageGroup group) const {
    return static_cast<std::size_t>(group.layer * groups_ + group.index);
  }
  PageRun pages_of(std::int64_t group) const { return {group * per_, (group + 1) * per_}; }
  void set_next(std::size_t group, AccessList::Found next);

  std::int64_t per_, groups_;  // pages of a group, groups of a layer
  AccessList accesses_;
  std::int64_t begun_ = 0;                               // accesses
  std::vector<State> states_;                            // by layer, then group
  std::set<std::pair<std::int64_t, std::size_t>> here_;  // by next access
};

}  // namespace longstride
