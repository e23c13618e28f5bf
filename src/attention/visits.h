// Visit lists: for each query page of a chunk the KV pages it visits, and the transpose. For dense
// and sliding-window attention they derive from each query's first visible key, for sparse
// attention from the selected pages; packed documents are possible in all of them.
#pragma once

#include <cstdint>

#include "attention/selected_lists.h"
#include "schedule/layout.h"
#include "tensor/visit_buffers.h"

namespace longstride {

// Reused from chunk to chunk: after `reserve`, building allocates nothing. Not thread-safe.
class VisitLists {
 public:
  // Reserves capacity for any chunk of a sequence with this layout's tokens, chunk and page sizes.
  void reserve(const SequenceLayout& layout);
  void build(const SequenceLayout& layout, std::int64_t chunk, std::int64_t window);
  // For a sparse layer: the selected pages, then the chunk's own.
  void build(const SequenceLayout& layout, std::int64_t chunk, const SelectedLists& selected,
             std::int64_t layer);
  // Valid until the next build.
  VisitsView view() const { return lists_.view(); }

 private:
  void see_documents(const SequenceLayout& layout, std::int64_t chunk, std::int64_t window);

  VisitBuffers lists_;
  std::vector<std::int64_t> cursors_;
};

}  // namespace longstride
