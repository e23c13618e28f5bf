#include "pages/access_list.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

bool AccessList::extends(const Entry& entry, const PageAccess& access) const {
  return entry.set == kRun && !access.late && access.pages.runs().size() == 1 &&
         entry.layer == access.layer && access.pages.hull().begin == entry.end() &&
         access.pages.size() == entry.length && entry.creates == access.creates &&
         entry.all_new == access.all_new && entry.zeroed == access.zeroed &&
         entry.changes == access.changes;
}

void AccessList::set_pages(Entry& entry, const PageSet& pages) {
  const PageRun hull = pages.hull();
  LS_CHECK(hull.begin >= 0 && hull.end < std::int64_t{kNone}, "pages {} to {}", hull.begin,
           hull.end);
  largest_ = std::max(largest_, pages.size());
  pages_end_ = std::max(pages_end_, hull.end);
  entry.begin = static_cast<std::uint32_t>(hull.begin);
  entry.length = static_cast<std::uint32_t>(hull.size());
  entry.set = kRun;
  if (pages.runs().size() <= 1) return;
  entry.set = static_cast<std::int32_t>(sets_.size());
  sets_.push_back(pages);
}

void AccessList::add(const PageAccess& access) {
  LS_CHECK(access.layer >= 0 && access.layer < layers(), "layer {} of {}", access.layer, layers());
  LS_CHECK(access.pages.empty() || !access.late, "{} pages of a late access", access.pages.size());
  LS_CHECK(size_ < std::int64_t{kNone}, "{} accesses", size_);
  if (!entries_.empty() && extends(entries_.back(), access)) {
    ++entries_.back().count;
    pages_end_ = std::max(pages_end_, entries_.back().end());
    ++size_;
    return;
  }
  const auto index = static_cast<std::uint32_t>(entries_.size());
  Entry& entry = entries_.emplace_back();
  entry.first = static_cast<std::uint32_t>(size_++);
  entry.layer = static_cast<std::uint16_t>(access.layer);
  entry.creates = access.creates;
  entry.all_new = access.all_new;
  entry.zeroed = access.zeroed;
  entry.changes = access.changes;
  set_pages(entry, access.pages);
  if (access.late) {
    entry.set = kLate;
    entry.late = any_late_ = true;
    return;
  }
  std::uint32_t& last = last_[static_cast<std::size_t>(access.layer)];
  if (last != kNone) entries_[last].next = index;
  last = index;
}

void AccessList::resolve(std::int64_t number, const PageSet& pages) {
  Entry& entry = entries_[entry_of(number)];
  LS_CHECK(entry.set == kLate, "access {} has its pages already", number);
  set_pages(entry, pages);
}

std::uint32_t AccessList::entry_of(std::int64_t number) const {
  LS_CHECK(number >= 0 && number < size_, "access {} of {}", number, size_);
  const auto holds = [&](std::uint32_t e) {
    return e < entries_.size() && entries_[e].first <= number &&
           number < entries_[e].first + entries_[e].count;
  };
  if (!holds(at_) && !holds(++at_))
    at_ = static_cast<std::uint32_t>(
        std::upper_bound(entries_.begin(), entries_.end(), number,
                         [](std::int64_t n, const Entry& entry) { return n < entry.first; }) -
        entries_.begin() - 1);
  return at_;
}

PageAccess AccessList::at(std::int64_t number) const {
  const Entry& entry = entries_[entry_of(number)];
  PageAccess access{.layer = entry.layer,
                    .creates = entry.creates,
                    .all_new = entry.all_new,
                    .zeroed = entry.zeroed,
                    .changes = entry.changes,
                    .late = entry.set == kLate};
  if (entry.set >= 0) {
    access.pages = sets_[static_cast<std::size_t>(entry.set)];
  } else if (!access.late) {
    const std::int64_t begin = entry.begin + (number - entry.first) * entry.length;
    access.pages = PageRun{begin, begin + entry.length};
  }
  return access;
}

AccessList::Found AccessList::next(PageRun pages, std::int64_t number, std::uint32_t entry) const {
  for (; entry != kNone; entry = entries_[entry].next) {
    const Entry& x = entries_[entry];
    if (pages.end <= x.begin) continue;
    if (x.set >= 0) {
      if (x.first >= number && sets_[static_cast<std::size_t>(x.set)].overlaps(pages))
        return {x.first, entry};
      continue;
    }
    if (pages.begin >= x.end()) continue;
    // Access k of the entry is the first that has one of the pages, access `last` the last.
    const std::int64_t before = pages.begin - x.begin;
    std::int64_t k = x.count == 1 || before <= 0 ? 0 : before / x.length;
    k = std::max(k, number - x.first);
    const std::int64_t last =
        x.count == 1 ? 0
                     : std::min<std::int64_t>(x.count - 1, (pages.end - 1 - x.begin) / x.length);
    if (k <= last) return {x.first + k, entry};
  }
  return {};
}

std::int64_t AccessList::bytes() const {
  std::size_t bytes = entries_.capacity() * sizeof(Entry) + sets_.capacity() * sizeof(PageSet) +
                      last_.capacity() * sizeof(std::uint32_t);
  for (const PageSet& set : sets_) bytes += set.runs().size() * sizeof(PageRun);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace longstride
