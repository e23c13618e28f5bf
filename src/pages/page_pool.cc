#include "pages/page_pool.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace longstride {

PagePool::PagePool(Device& device, std::int64_t page_bytes, std::int64_t capacity,
                   const std::string& what)
    : what_(what), page_bytes_(page_bytes), capacity_(capacity) {
  LS_CHECK(page_bytes > 0 && capacity >= 0 && capacity <= std::numeric_limits<std::int32_t>::max(),
           "{}: {} pages of {} bytes", what, capacity, page_bytes);
  free_.resize(static_cast<std::size_t>(capacity));
  taken_.resize(free_.size());
  std::iota(free_.begin(), free_.end(), 0);  // ascending: already a heap
  if (capacity > 0) memory_ = device.allocate(page_bytes * capacity, what);
}

std::int32_t PagePool::take() {
  LS_CHECK(!free_.empty(), "{}: all {} pages are in use", what_, capacity_);
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const std::int32_t slot = free_.back();
  free_.pop_back();
  taken_[static_cast<std::size_t>(slot)] = true;
  peak_ = std::max(peak_, ++in_use_);
  return slot;
}

void PagePool::give(std::int32_t slot) {
  LS_CHECK(slot >= 0 && slot < capacity_, "{}: slot {} of {}", what_, slot, capacity_);
  LS_CHECK(taken_[static_cast<std::size_t>(slot)], "{}: slot {} is free already", what_, slot);
  taken_[static_cast<std::size_t>(slot)] = false;
  free_.push_back(slot);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  --in_use_;
}

}  // namespace longstride
