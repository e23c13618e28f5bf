#include "pages/residency.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace longstride {

Residency::Residency(std::int64_t layers, std::int64_t logical_pages, std::int64_t pages_per_group)
    : per_(pages_per_group),
      groups_((logical_pages + per_ - 1) / per_),
      states_(static_cast<std::size_t>(layers * groups_)) {}

void Residency::begin(AccessList accesses) {
  LS_CHECK(here_.empty(), "{} groups of the last sequence", here_.size());
  LS_CHECK(
      accesses.pages_end() <= groups_ * per_ && accesses.layers() * groups_ == std::ssize(states_),
      "accesses of {} layers up to page {}, and {} groups of {} pages", accesses.layers(),
      accesses.pages_end(), states_.size(), per_);
  accesses_ = std::move(accesses);
  begun_ = 0;
  std::fill(states_.begin(), states_.end(), State{});
  late_.clear();
  free_ = kEnd;
  staying_.clear();
  // Finds the first access of each group. `open[i]` leads to the first group from i on that has
  // none yet.
  std::vector<std::uint32_t> open(states_.size() + 1);
  std::iota(open.begin(), open.end(), 0u);
  accesses_.for_entries(
      [&](std::int64_t layer, PageRun pages, std::int64_t length, AccessList::Found found) {
        const std::size_t end = index({layer, (pages.end - 1) / per_}) + 1;
        const auto skip = [&](std::size_t i) {
          while (open[i] != i) i = open[i] = open[open[i]];
          return i;
        };
        for (std::size_t i = skip(index({layer, pages.begin / per_})); i < end; i = skip(i)) {
          const std::int64_t group = static_cast<std::int64_t>(i) - layer * groups_,
                             before = std::max<std::int64_t>(0, group * per_ - pages.begin);
          states_[i].known = {found.number + before / length, found.entry};
          open[i] = static_cast<std::uint32_t>(i + 1);
        }
      });
}

void Residency::reorder(std::size_t group, std::int64_t before) {
  const State& s = states_[group];
  const std::int64_t now = next_of(s);
  if (!s.is_here || s.pins > 0 || now == before) return;
  auto node = here_.extract({before, group});  // no allocation
  node.value().first = now;
  here_.insert(std::move(node));
}

void Residency::put(std::size_t group) {
  const State& s = states_[group];
  if (s.is_here && s.pins == 0) here_.emplace(next_of(s), group);
}

void Residency::drop(std::size_t group) {
  const State& s = states_[group];
  if (s.is_here && s.pins == 0) here_.erase({next_of(s), group});
}

void Residency::add_late(State& s, std::int64_t number) {
  std::uint32_t made = free_;
  if (made == kEnd) {
    made = static_cast<std::uint32_t>(late_.size());
    late_.emplace_back();
  } else {
    free_ = late_[made].next;
  }
  // The backward pass runs the chunks in reverse, so later selections mostly come first.
  std::uint32_t* at = &s.late;
  while (*at != kEnd && late_[*at].number < number) at = &late_[*at].next;
  late_[made] = {static_cast<std::uint32_t>(number), *at};
  *at = made;
}

void Residency::remove_late(State& s, std::int64_t number) {
  LS_CHECK(s.late != kEnd && late_[s.late].number == number, "access {} is not next", number);
  const std::uint32_t first = s.late;
  s.late = late_[first].next;
  late_[first].next = free_;
  free_ = first;
}

void Residency::resolve(std::int64_t number, const PageSet& pages) {
  LS_CHECK(number >= begun_, "access {} has begun, of {}", number, begun_);
  LS_CHECK(pages.hull().end <= groups_ * per_, "page {} of {}", pages.hull().end, groups_ * per_);
  accesses_.resolve(number, pages);
  const std::int64_t layer = accesses_.at(number).layer;
  for_groups(pages, per_, [&](std::int64_t group) {
    const std::size_t i = index({layer, group});
    const std::int64_t before = next_of(states_[i]);
    add_late(states_[i], number);
    reorder(i, before);
  });
}

void Residency::pin(std::int64_t number) {
  const PageAccess access = accesses_.at(number);
  LS_CHECK(!access.late, "access {} begins without its pages", number);
  const bool was_late = accesses_.was_late(number);
  for_groups(access.pages, per_, [&](std::int64_t group) {
    const std::size_t i = index({access.layer, group});
    State& s = states_[i];
    const std::int64_t before = next_of(s);
    LS_CHECK(before == number, "access {} begins, and {} is next", number, before);
    drop(i);
    if (was_late)
      remove_late(s, number);
    else
      s.known = accesses_.next(pages_of(group), number + 1, s.known.entry);
    ++s.pins;
  });
  begun_ = number + 1;
}

bool Residency::stays(std::int64_t number) const {
  if (!accesses_.at(number).all_new) return false;
  const std::int64_t end = std::min(number + kNewStay + 1, accesses_.size());
  for (std::int64_t next = number + 1; next < end; ++next)
    if (accesses_.was_late(next)) return true;
  return false;
}

void Residency::unpin(std::int64_t number) {
  while (!staying_.empty() && staying_.front() + kNewStay <= number) {
    let_go(staying_.front());
    staying_.pop_front();
  }
  if (stays(number))
    staying_.push_back(number);
  else
    let_go(number);
}

void Residency::let_go(std::int64_t number) {
  const PageAccess access = accesses_.at(number);
  for_groups(access.pages, per_, [&](std::int64_t group) {
    const std::size_t i = index({access.layer, group});
    State& s = states_[i];
    LS_CHECK(s.pins > 0, "access {} has ended", number);
    --s.pins;
    put(i);
  });
}

void Residency::arrive(PageGroup group) {
  State& s = states_.at(index(group));
  LS_CHECK(!s.is_here, "layer {} group {} is here", group.layer, group.index);
  s.is_here = true;
  put(index(group));
}

void Residency::leave(PageGroup group) {
  State& s = states_.at(index(group));
  LS_CHECK(s.is_here, "layer {} group {} is not here", group.layer, group.index);
  drop(index(group));
  s.is_here = false;
}

std::optional<PageGroup> Residency::victim(std::int64_t than) {
  const auto none = [&] { return here_.empty() || here_.rbegin()->first <= than; };
  if (none() && than == begun_) {
    for (const std::int64_t number : staying_) let_go(number);
    staying_.clear();
  }
  if (none()) return std::nullopt;
  const auto i = static_cast<std::int64_t>(here_.rbegin()->second);
  return PageGroup{i / groups_, i % groups_};
}

std::int64_t Residency::bytes() const {
  constexpr std::size_t kNode = 64;  // of a set, allocator overhead included
  return accesses_.bytes() +
         static_cast<std::int64_t>(states_.capacity() * sizeof(State) +
                                   late_.capacity() * sizeof(LateNode) + here_.size() * kNode);
}

}  // namespace longstride
