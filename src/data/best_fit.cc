#include "data/best_fit.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"

namespace longstride {
namespace {

// Items by length, the longest first, equal ones in their order.
std::vector<std::int64_t> longest_first(std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::sort(order, [&](std::int64_t a, std::int64_t b) {
    const std::int64_t x = lengths[static_cast<std::size_t>(a)],
                       y = lengths[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  return order;
}

// The bins that have room, by how much. At most one bin is half empty, so the keys of the map are
// few: at most about the root of all lengths' sum.
class OpenBins {
 public:
  // The fullest bin with room for `length`, taken out; -1: none.
  std::int64_t take(std::int64_t length, std::int64_t& room) {
    const auto best = heads_.lower_bound(length);
    if (best == heads_.end()) return -1;
    const std::int64_t bin = best->second;
    room = best->first;
    const std::int64_t next = next_[static_cast<std::size_t>(bin)];
    if (next < 0)
      heads_.erase(best);
    else
      best->second = next;
    return bin;
  }
  void put(std::int64_t bin, std::int64_t room) {
    if (static_cast<std::size_t>(bin) >= next_.size())
      next_.resize(static_cast<std::size_t>(bin) + 1);
    if (room == 0) return;
    const auto [head, is_new] = heads_.emplace(room, bin);
    next_[static_cast<std::size_t>(bin)] = is_new ? -1 : head->second;
    head->second = bin;
  }

 private:
  std::map<std::int64_t, std::int64_t> heads_;  // by room: the first of a chain of bins
  std::vector<std::int64_t> next_;              // in the chain; -1: the end
};

}  // namespace

Bins best_fit(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  std::vector<std::int64_t> bin_of(lengths.size());
  std::int64_t count = 0;
  {
    OpenBins open;
    for (const std::int64_t item : longest_first(lengths)) {
      const std::int64_t length = lengths[static_cast<std::size_t>(item)];
      LS_CHECK(length >= 1 && length <= capacity, "length {} of {}", length, capacity);
      std::int64_t room = capacity, bin = open.take(length, room);
      if (bin < 0) bin = count++;
      bin_of[static_cast<std::size_t>(item)] = bin;
      open.put(bin, room - length);
    }
  }
  // Numbers the bins by their first items, then sorts the items by bin, keeping their order.
  std::vector<std::int64_t> number(static_cast<std::size_t>(count), -1);
  Bins bins;
  bins.starts.assign(static_cast<std::size_t>(count) + 1, 0);
  std::int64_t seen = 0;
  for (std::int64_t& bin : bin_of) {
    std::int64_t& n = number[static_cast<std::size_t>(bin)];
    if (n < 0) n = seen++;
    bin = n;
    ++bins.starts[static_cast<std::size_t>(n) + 1];
  }
  std::partial_sum(bins.starts.begin(), bins.starts.end(), bins.starts.begin());
  std::vector<std::int64_t>& next = number;
  std::copy(bins.starts.begin(), bins.starts.end() - 1, next.begin());
  bins.items.resize(lengths.size());
  for (std::size_t item = 0; item < lengths.size(); ++item)
    bins.items[static_cast<std::size_t>(next[static_cast<std::size_t>(bin_of[item])]++)] =
        static_cast<std::int64_t>(item);
  return bins;
}

}  // namespace longstride
