// FlatPages: the keys and values of one sequence, every page in its place on the device from the
// start. For passes that only go forward and compute some pages more than once: nothing is created,
// freed, offloaded or differentiated.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "pages/kv_store.h"
#include "pages/page_store.h"

namespace longstride {

class FlatPages final : public PageStore {
 public:
  // Pages [0, pages) of every layer.
  FlatPages(Device& device, const KvShape& shape, std::int64_t pages);
  static std::int64_t bytes_needed(const KvShape& shape, std::int64_t pages) {
    return shape.layers * pages * shape.page_bytes();
  }

  void enter(const Task&) override {}
  bool comes_in_segments(const Task&) const override { return false; }
  void enter_segment(const Task&, std::size_t) override {}
  void select(const Task&, const PageSet&) override {}
  void leave(const Task&) override {}
  PagesView kv(std::int64_t layer) const override;
  PagesView gradients(std::int64_t layer) const override;  // fails: there are none

 private:
  KvShape shape_;
  std::int64_t pages_;
  std::vector<std::int32_t> slots_;  // of all layers, one after the other
  std::unique_ptr<Memory> memory_;
};

}  // namespace longstride
