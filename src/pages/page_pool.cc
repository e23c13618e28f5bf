#include "pages/page_pool.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace longstride {

PagePool::PagePool(Device& device, std::int64_t page_bytes, std::int64_t capacity,
                   const std::string& what)
    : what_(what), page_bytes_(page_bytes), capacity_(capacity) {
  LS_CHECK(page_bytes > 0 && capacity >= 0 && capacity <= std::numeric_limits<std::int32_t>::max(),
           "{}: {} pages of {} bytes", what, capacity, page_bytes);
  taken_.resize(static_cast<std::size_t>(capacity));
  if (capacity > 0) memory_ = device.allocate(page_bytes * capacity, what);
}

std::int32_t PagePool::take(std::int64_t preferred) {
  LS_CHECK(in_use_ < capacity_, "{}: all {} pages are in use", what_, capacity_);
  std::int64_t slot = preferred;
  if (slot < 0 || slot >= capacity_ || taken_[static_cast<std::size_t>(slot)]) {
    while (taken_[static_cast<std::size_t>(lowest_free_)]) ++lowest_free_;
    slot = lowest_free_;
  }
  taken_[static_cast<std::size_t>(slot)] = true;
  peak_ = std::max(peak_, ++in_use_);
  return static_cast<std::int32_t>(slot);
}

std::int64_t PagePool::find_run(std::int64_t count, std::int64_t longer,
                                std::int64_t preferred) const {
  const auto is_free = [&](std::int64_t slot) { return !taken_[static_cast<std::size_t>(slot)]; };
  if (preferred >= 0 && preferred + count <= capacity_) {
    std::int64_t n = 0;
    while (n < count && is_free(preferred + n)) ++n;
    if (n == count) return preferred;
  }
  std::int64_t first = -1, run = 0;
  for (std::int64_t slot = lowest_free_; slot < capacity_; ++slot) {
    run = is_free(slot) ? run + 1 : 0;
    if (run == longer) return slot - longer + 1;
    if (run == count && first < 0) first = slot - count + 1;
  }
  return first;
}

void PagePool::give(std::int32_t slot) {
  LS_CHECK(slot >= 0 && slot < capacity_, "{}: slot {} of {}", what_, slot, capacity_);
  LS_CHECK(taken_[static_cast<std::size_t>(slot)], "{}: slot {} is free already", what_, slot);
  taken_[static_cast<std::size_t>(slot)] = false;
  lowest_free_ = std::min<std::int64_t>(lowest_free_, slot);
  --in_use_;
}

}  // namespace longstride
