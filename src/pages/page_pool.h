// A pool of equal pages in one block of device memory, allocated once. The slots it hands out
// depend on the calls alone, so a run repeated with the same schedule uses the same slots.
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace longstride {

class PagePool {
 public:
  PagePool(Device& device, std::int64_t page_bytes, std::int64_t capacity, const std::string& what);

  // A slot whose content is undefined: `preferred` if it is free, else the lowest free one. The
  // capacity comes from the schedule, so an exhausted pool is a broken invariant.
  std::int32_t take(std::int64_t preferred = 0);
  // The start of a run of `count` free slots: `preferred` if one starts there, else that of the
  // first run of `longer` free slots, else that of the first run. -1 if there is none.
  std::int64_t find_run(std::int64_t count, std::int64_t longer, std::int64_t preferred) const;
  // Returns a taken slot to the pool.
  void give(std::int32_t slot);

  std::byte* base() const { return memory_ ? memory_->data() : nullptr; }
  std::byte* page(std::int32_t slot) const {
    return base() + static_cast<std::int64_t>(slot) * page_bytes_;
  }
  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t in_use() const { return in_use_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::string what_;
  std::int64_t page_bytes_, capacity_, in_use_ = 0, peak_ = 0;
  std::vector<bool> taken_;       // per slot
  std::int64_t lowest_free_ = 0;  // no slot below is free
  std::unique_ptr<Memory> memory_;
};

}  // namespace longstride
