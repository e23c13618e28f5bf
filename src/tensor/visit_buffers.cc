#include "tensor/visit_buffers.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

void VisitBuffers::list_pages(std::int64_t page_tokens, std::int64_t first_page) {
  const std::int64_t own = chunk_begin / page_tokens,
                     query_pages = (std::ssize(first_visible) + page_tokens - 1) / page_tokens;
  const auto first_of = [&](std::int64_t query_page) {
    return first_visible[static_cast<std::size_t>(query_page * page_tokens)] / page_tokens;
  };
  offsets.assign(1, 0);
  kv_pages.clear();
  for (std::int64_t q = 0; q < query_pages; ++q) {
    for (std::int64_t page = first_of(q); page <= own + q; ++page)
      kv_pages.push_back(static_cast<std::int32_t>(page));
    offsets.push_back(std::ssize(kv_pages));
  }

  visited.clear();
  back_queries.clear();
  back_offsets.assign(1, 0);
  for (std::int64_t page = first_page; page < own + query_pages; ++page) {
    for (std::int64_t q = std::max<std::int64_t>(0, page - own);
         q < query_pages && first_of(q) <= page; ++q)
      back_queries.push_back(static_cast<std::int32_t>(q));
    visited.push_back(static_cast<std::int32_t>(page));
    back_offsets.push_back(std::ssize(back_queries));
  }
  LS_CHECK(back_queries.size() == kv_pages.size(), "{} visits, {} in the transpose",
           kv_pages.size(), back_queries.size());
}

VisitsView VisitBuffers::view() const {
  return {.kind = kind,
          .dense = dense,
          .chunk_begin = chunk_begin,
          .query_pages = std::ssize(offsets) - 1,
          .offsets = offsets.data(),
          .kv_pages = kv_pages.data(),
          .first_visible = first_visible.data(),
          .visited_pages = std::ssize(visited),
          .visited = visited.data(),
          .back_offsets = back_offsets.data(),
          .back_queries = back_queries.data()};
}

}  // namespace longstride
