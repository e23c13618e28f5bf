// Visit lists with their memory, reused from chunk to chunk. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/pages_view.h"

namespace longstride {

struct VisitBuffers {
  AttentionKind kind = AttentionKind::kSparse;
  DenseKeys dense = {};  // kDense
  std::int64_t chunk_begin = 0;
  std::vector<std::int64_t> offsets, first_visible, back_offsets;
  std::vector<std::int32_t> kv_pages, visited, back_queries;

  // Fills the lists from chunk_begin and first_visible: a query page visits all pages from the
  // first one its first query sees to its own. `first_page` is the first page that any visits.
  void list_pages(std::int64_t page_tokens, std::int64_t first_page);
  // Valid until a list changes.
  VisitsView view() const;
};

}  // namespace longstride
