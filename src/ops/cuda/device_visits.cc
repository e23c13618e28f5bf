#include "ops/cuda/device_visits.h"

namespace longstride::ops::cuda {

DeviceVisits upload_visits(longstride::cuda::CudaStream& stream, const VisitsView& v,
                           std::int64_t tokens) {
  DeviceVisits d;
  d.chunk_begin = v.chunk_begin;
  d.query_pages = v.query_pages;
  d.visited_pages = v.visited_pages;
  d.offsets = stream.upload(v.offsets, v.query_pages + 1);
  d.kv_pages = stream.upload(v.kv_pages, v.offsets[v.query_pages]);
  d.first_visible = stream.upload(v.first_visible, tokens);
  d.visited = stream.upload(v.visited, v.visited_pages);
  d.back_offsets = stream.upload(v.back_offsets, v.visited_pages + 1);
  d.back_queries = stream.upload(v.back_queries, v.back_offsets[v.visited_pages]);
  return d;
}

DevicePages upload_pages(longstride::cuda::CudaStream& stream, const PagesView& pages,
                         const VisitsView& v) {
  const std::int64_t count =
      v.visited_pages == 0 ? 0 : std::int64_t{v.visited[v.visited_pages - 1]} + 1;
  return {pages.base,       stream.upload(pages.slots, count),
          pages.page_bytes, pages.page_tokens,
          pages.kv_heads,   pages.head_size};
}

}  // namespace longstride::ops::cuda
