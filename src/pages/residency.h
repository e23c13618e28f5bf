// Which page groups are on the device, and which one to evict when capacity is needed. Policy
// only: it knows the order of the step and moves nothing.
//
// The order of a step's accesses is known before it starts, so the victim is the group whose next
// access is farthest away (Belady). In a dense model a layer's next turn accesses all its groups:
// then as many as fit stay resident, and the others stream through.
//
// A late access counts as accessing nothing until it is resolved. Counting it as accessing all
// pages of its layer would make them look equally near and hide their real order. A group evicted
// because of this costs a copy, and changes no result. But the pages that a chunk has just created
// look as if nobody wanted them until its own late access is resolved: they stay for a while.
//
// Of the accesses that are known from the start, only each group's next one is stored. When it
// begins, the search for the following one resumes in the list where the last one stopped. So
// memory does not grow with accesses times groups. Resolved late accesses are kept in a list per
// group.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
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

  // Begins a sequence with these accesses. Requires that no group is on the device.
  void begin(AccessList accesses);
  const AccessList& accesses() const { return accesses_; }
  // Sets the pages of a late access that has not begun.
  void resolve(std::int64_t number, const PageSet& pages);
  // Access `number` begins, in order: its groups are not evicted until unpin, and if it created
  // them for late accesses that follow, until kNewStay more have ended.
  void pin(std::int64_t number);
  void unpin(std::int64_t number);

  // The group is on the device, or slots are taken for it (arrive); it no longer is (leave).
  void arrive(PageGroup group);
  void leave(PageGroup group);
  bool is_here(PageGroup group) const { return states_[index(group)].is_here; }
  // The first access to the group that has not begun yet.
  std::int64_t next_access(PageGroup group) const { return next_of(states_[index(group)]); }
  // The group to evict: of those on the device that are not pinned, the one whose next access is
  // farthest, if that is after access `than`. If that access is the next to begin and there is no
  // such group, new ones do not stay.
  std::optional<PageGroup> victim(std::int64_t than);

  std::int64_t bytes() const;  // of memory

 private:
  // Accesses from one that creates pages to the one that attends to them. In between, the other of
  // two chunks in turn attends and creates pages.
  static constexpr std::int64_t kNewStay = 3;
  static constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
  struct State {
    AccessList::Found known;    // the next access that was not late
    std::uint32_t late = kEnd;  // the first of the resolved late accesses, ascending
    std::int32_t pins = 0;
    bool is_here = false;
  };
  struct LateNode {
    std::uint32_t number = 0, next = kEnd;
  };
  std::int64_t next_of(const State& s) const {
    return s.late == kEnd ? s.known.number
                          : std::min<std::int64_t>(s.known.number, late_[s.late].number);
  }
  std::size_t index(PageGroup group) const {
    return static_cast<std::size_t>(group.layer * groups_ + group.index);
  }
  PageRun pages_of(std::int64_t group) const { return {group * per_, (group + 1) * per_}; }
  void add_late(State& s, std::int64_t number);
  void remove_late(State& s, std::int64_t number);
  // The group's next access was `before`: keeps here_ in order.
  void reorder(std::size_t group, std::int64_t before);
  bool stays(std::int64_t number) const;
  void let_go(std::int64_t number);
  void put(std::size_t group);   // into here_
  void drop(std::size_t group);  // from here_

  std::int64_t per_, groups_;  // pages per group, groups per layer
  AccessList accesses_;
  std::int64_t begun_ = 0;      // number of accesses
  std::vector<State> states_;   // by layer, then group
  std::vector<LateNode> late_;  // the nodes of all lists
  std::uint32_t free_ = kEnd;   // nodes that are in none
  // (next access, index of the group), of those on the device that are not pinned.
  std::set<std::pair<std::int64_t, std::size_t>> here_;
  std::deque<std::int64_t> staying_;  // accesses that have ended, and whose new groups are pinned
};

}  // namespace longstride
