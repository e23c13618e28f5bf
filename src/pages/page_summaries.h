// The summaries of a sequence's pages in all sparse layers, on the device: means of their rotated
// keys, by which sparse attention selects. They are all that grows with the context there if pages
// are offloaded.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"
#include "pages/kv_store.h"
#include "tensor/selection.h"
#include "tensor/view.h"

namespace longstride {

// Owns the memory. Not thread-safe: the thread that runs the step owns it.
class PageSummaries {
 public:
  // For sequences of up to `pages` pages. No sparse layer: takes no memory.
  PageSummaries(Device& device, const KvShape& shape, const SparseLayers& sparse,
                std::int64_t pages);
  static std::int64_t bytes(const KvShape& shape, const SparseLayers& sparse, std::int64_t pages);

  std::int64_t means() const { return means_; }  // S, of a page
  // [pages * S, KV heads, head size], from the sequence's first page on, in the type that attention
  // reads.
  View of_layer(std::int64_t layer) const;

 private:
  KvShape shape_;
  std::int64_t pages_, means_;
  std::vector<std::int64_t> index_;  // per layer: among the sparse ones
  std::unique_ptr<Memory> memory_;   // null if no layer is sparse
};

}  // namespace longstride
