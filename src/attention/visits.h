// Visit lists: for each query page of a chunk the KV pages it visits, and the transpose. They
// derive from each query's first visible key, for dense and sliding-window attention and packed
// documents alike.
#pragma once

#include <cstdint>

#include "schedule/layout.h"
#include "tensor/visit_buffers.h"

namespace longstride {

// Reused from chunk to chunk: after `reserve`, building allocates nothing. Not thread-safe.
class VisitLists {
 public:
  // Reserves capacity for any chunk of a sequence with this layout's tokens, chunk and page sizes.
  void reserve(const SequenceLayout& layout);
  void build(const SequenceLayout& layout, std::int64_t chunk, std::int64_t window);
  // Valid until the next build.
  VisitsView view() const { return lists_.view(); }

 private:
  VisitBuffers lists_;
};

}  // namespace longstride
