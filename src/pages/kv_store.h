// The paged keys and values of all layers, and their gradients. Tables map a layer's logical pages
// (token / P) to slots of two pools, one for K/V and one for gradients. Not thread-safe: the thread
// that runs the step owns it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pages/page_pool.h"
#include "schedule/layout.h"
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

class KvStore {
 public:
  // Pools of the given numbers of pages, tables for sequences of up to `logical_pages` pages.
  KvStore(Device& device, const KvShape& shape, std::int64_t logical_pages,
          std::int64_t kv_capacity, std::int64_t gradient_capacity);

  // New K/V pages for a run; their content is undefined until tokens are stored.
  void append(std::int64_t layer, PageRun run);
  // Makes sure every page of the run has a gradient page; new ones are zeroed.
  void touch_gradients(std::int64_t layer, PageRun run);
  // Ends the run's K/V pages and its gradient pages.
  void release(std::int64_t layer, PageRun run);
  // Ends everything: after a step that was interrupted.
  void release_all();

  PagesView kv(std::int64_t layer) const { return view(kv_pool_, kv_tables_, layer, shape_.dtype); }
  PagesView gradients(std::int64_t layer) const {
    return view(gradient_pool_, gradient_tables_, layer, shape_.gradient_dtype);
  }
  const PagePool& kv_pool() const { return kv_pool_; }
  const PagePool& gradient_pool() const { return gradient_pool_; }

 private:
  // The slot that a layer's page gets where it is free: a layer's pages then lie one after another,
  // as attention over long runs likes them.
  std::int64_t home(const PagePool& pool, std::int64_t layer, std::int64_t page) const {
    const std::int64_t per_layer = pool.capacity() / shape_.layers;
    return per_layer == 0 ? 0 : layer * per_layer + page % per_layer;
  }
  void zero_gradients(PageRun slots);
  using Tables = std::vector<std::vector<std::int32_t>>;
  PagesView view(const PagePool& pool, const Tables& tables, std::int64_t layer, DType dtype) const;

  Device& device_;
  KvShape shape_;
  PagePool kv_pool_, gradient_pool_;
  Tables kv_tables_, gradient_tables_;  // per layer: logical page -> slot, -1 where there is none
};

}  // namespace longstride
