// All accesses of a step to pages, in order. Data and queries, no policy.
//
// A dense layer accesses its keys segment by segment, so a long sequence has tens of millions of
// accesses. Consecutive accesses to adjacent runs of equal length share one entry: memory grows
// with the tasks of a step, not with its accesses.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "schedule/page_set.h"

namespace longstride {

// Pages of a layer that are computed on together.
struct PageAccess {
  std::int64_t layer = 0;
  PageSet pages;
  bool creates = false;  // creates those that do not exist, their content undefined or zero
  bool all_new = false;  // requires that none exists
  bool zeroed = false;   // created pages are zeroed
  bool changes = false;  // writes to its pages
  bool late = false;     // its pages are not known yet: `pages` is empty until it is resolved
};

// An access's number is its position in the step. Not thread-safe, not even the const functions:
// they cache the entry found last.
class AccessList {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  explicit AccessList(std::int64_t layers = 0) : last_(static_cast<std::size_t>(layers), kNone) {}

  // Appends an access. It may have no pages: a segment of the keys in which none is selected.
  void add(const PageAccess& access);
  // Sets the pages of an access that was added as late.
  void resolve(std::int64_t number, const PageSet& pages);

  std::int64_t layers() const { return std::ssize(last_); }
  std::int64_t size() const { return size_; }
  PageAccess at(std::int64_t number) const;
  // The page count of the largest access, and the end of the last page; late accesses count once
  // resolved.
  std::int64_t largest() const { return largest_; }
  std::int64_t pages_end() const { return pages_end_; }
  std::int64_t bytes() const;  // of memory

  // An access that was found, and its entry: a later search for the same pages may start there.
  struct Found {
    std::int64_t number = kNever;
    std::uint32_t entry = kNone;
  };
  // The first access from `number` on, at or after `entry` and in its layer, that has one of these
  // pages. Late accesses are not found, not even resolved ones.
  Found next(PageRun pages, std::int64_t number, std::uint32_t entry) const;
  bool any_late() const { return any_late_; }  // whether one was added as late
  // Whether the access was added as late.
  bool was_late(std::int64_t number) const { return entries_[entry_of(number)].late; }
  // Calls f(layer, pages, length, Found) for all entries in order: consecutive accesses, starting
  // with Found's, of `length` pages each, that cover `pages`. For a set, calls f once per run.
  template <class F>
  void for_entries(const F& f) const {
    for (std::uint32_t e = 0; e < entries_.size(); ++e) {
      const Entry& x = entries_[e];
      if (x.set == kRun && x.length > 0) {
        f(x.layer, PageRun{x.begin, x.end()}, std::int64_t{x.length}, Found{x.first, e});
      } else if (x.set >= 0) {
        for (const PageRun& run : sets_[static_cast<std::size_t>(x.set)].runs())
          f(x.layer, run, run.size(), Found{x.first, e});
      }
    }
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::int32_t kRun = -1, kLate = -2;
  // Accesses [first, first + count): access first + k has the `length` pages from begin + k *
  // length on. A set or a late access has an entry of its own.
  struct Entry {
    std::uint32_t first = 0, count = 1, begin = 0, length = 0;
    std::uint32_t next = kNone;  // the next entry of the same layer that is not late
    std::int32_t set = kRun;     // index into sets_
    std::uint16_t layer = 0;
    bool creates : 1 = false, all_new : 1 = false, zeroed : 1 = false, changes : 1 = false;
    bool late : 1 = false;  // was added as late; not in the chain of its layer

    std::int64_t end() const { return begin + std::int64_t{count} * length; }
  };
  std::uint32_t entry_of(std::int64_t number) const;
  void set_pages(Entry& entry, const PageSet& pages);
  bool extends(const Entry& entry, const PageAccess& access) const;

  std::vector<Entry> entries_;
  std::vector<PageSet> sets_;        // those of several runs
  std::vector<std::uint32_t> last_;  // the last entry of each layer
  std::int64_t size_ = 0, largest_ = 0, pages_end_ = 0;
  bool any_late_ = false;
  mutable std::uint32_t at_ = 0;  // entry found last: most searches want it or the next one
};

}  // namespace longstride
