// Visit lists: for each query page of a chunk the KV pages it visits, and the transpose. Dense and
// sliding-window attention and packed documents all come from the layout's first visible key.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/layout.h"
#include "tensor/pages_view.h"

namespace longstride {

// Reused from chunk to chunk: after `reserve`, building allocates nothing. Not thread-safe.
class VisitLists {
 public:
  // Room for any chunk of a sequence with this layout's tokens, chunk and page.
  void reserve(const SequenceLayout& layout);
  void build(const SequenceLayout& layout, std::int64_t chunk, std::int64_t window);
  // Valid until the next build.
  VisitsView view() const;

 private:
  std::int64_t chunk_begin_ = 0;
  std::vector<std::int64_t> offsets_, first_visible_, back_offsets_;
  std::vector<std::int32_t> kv_pages_, visited_, back_queries_;
};

}  // namespace longstride
