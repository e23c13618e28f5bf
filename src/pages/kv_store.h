// The paged keys and values of all layers, and their gradients. What does not fit on the device
// waits off it; every task finds what it uses on the device. Not thread-safe: the thread that runs
// the step owns it.
#pragma once

#include <cstdint>

#include "pages/tiered_pages.h"
#include "schedule/step_schedule.h"
#include "tensor/pages_view.h"

namespace longstride {

struct KvShape {
  std::int64_t layers = 0, kv_heads = 0, head_size = 0, page_tokens = 0;
  DType dtype = DType::kF32;           // of keys and values
  DType gradient_dtype = DType::kF32;  // of their gradients
  std::int64_t page_bytes() const { return page_elements() * size_of(dtype); }
  std::int64_t gradient_page_bytes() const { return page_elements() * size_of(gradient_dtype); }
  std::int64_t page_elements() const { return 2 * page_tokens * kv_heads * head_size; }
};

// Room for sequences of up to `logical_pages` pages, in chunks of pages_per_chunk.
struct KvRoom {
  std::int64_t logical_pages = 0, pages_per_chunk = 1;
  std::int64_t kv_pages = 0, gradient_pages = 0;  // on the device
  AwayRoom kv_away = {}, gradient_away = {};
};

class KvStore {
 public:
  KvStore(Device& device, const KvShape& shape, const KvRoom& room);

  // A new sequence. Nothing is left of the last one.
  void begin(const StepSchedule& schedule);
  // Before a layer's task: the pages it visits are on the device, those it appends exist (their
  // content undefined), and in a backward task every visited page has a gradient page, zeroed at
  // its first touch.
  void enter(const Task& task);
  // After a backward task: what it frees ends, K/V pages and gradient pages.
  void leave(const Task& task);
  // Ends everything: after a step that was interrupted.
  void release_all();

  PagesView kv(std::int64_t layer) const { return view(kv_, layer, shape_.dtype); }
  PagesView gradients(std::int64_t layer) const {
    return view(gradients_, layer, shape_.gradient_dtype);
  }
  const PagePool& kv_pool() const { return kv_.pool(); }
  const PagePool& gradient_pool() const { return gradients_.pool(); }
  // Bytes since the store was made.
  AwayBlocks::Moved moved() const;

 private:
  PagesView view(const TieredPages& pages, std::int64_t layer, DType dtype) const;

  KvShape shape_;
  std::int64_t pages_per_chunk_;
  TieredPages kv_, gradients_;
};

}  // namespace longstride
