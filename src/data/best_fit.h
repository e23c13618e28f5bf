// Packs items into bins of one size by best fit: the longest item first, each into the fullest bin
// that has room for it. No item is cut, left out or used twice.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longstride {

// Bin b holds items[starts[b]] to items[starts[b + 1] - 1], ascending. Bins are in the order of
// their first items.
struct Bins {
  std::vector<std::int64_t> items, starts;
};

// Every length is in [1, capacity]. The result depends on the arguments alone. Takes O(n log n)
// time and, while it runs, four integers per item.
Bins best_fit(std::span<const std::int64_t> lengths, std::int64_t capacity);

}  // namespace longstride
