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
  std::int64_t page_bytes() const {
    return 2 * page_tokens * kv_heads * head_size * size_of(DType::kF32);
  }
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

  PagesView kv(std::int64_t layer) const { return view(kv_pool_, kv_tables_, layer); }
  PagesView gradients(std::int64_t layer) const {
    return view(gradient_pool_, gradient_tables_, layer);
  }
  const PagePool& kv_pool() const { return kv_pool_; }
  const PagePool& gradient_pool() const { return gradient_pool_; }

 private:
  using Tables = std::vector<std::vector<std::int32_t>>;
  PagesView view(const PagePool& pool, const Tables& tables, std::int64_t layer) const;

  Device& device_;
  KvShape shape_;
  PagePool kv_pool_, gradient_pool_;
  Tables kv_tables_, gradient_tables_;  // per layer: logical page -> slot, -1 where there is none
};

}  // namespace longstride
