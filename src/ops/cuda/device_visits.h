// The page table and visit lists of a call in device memory, for kernels that walk them.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "tensor/pages_view.h"

namespace longstride::ops::cuda {

struct DeviceVisits {
  std::int64_t chunk_begin = 0, query_pages = 0, visited_pages = 0;
  const std::int64_t* offsets = nullptr;
  const std::int32_t* kv_pages = nullptr;
  const std::int64_t* first_visible = nullptr;
  const std::int32_t* visited = nullptr;
  const std::int64_t* back_offsets = nullptr;
  const std::int32_t* back_queries = nullptr;
};

// A PagesView whose slots are in device memory.
struct DevicePages {
  std::byte* base = nullptr;
  const std::int32_t* slots = nullptr;
  std::int64_t page_bytes = 0, page_tokens = 0, kv_heads = 0, head_size = 0;
};

// Valid for operations queued next (see CudaStream::upload). The table ends with the last visited
// page.
DeviceVisits upload_visits(longstride::cuda::CudaStream& stream, const VisitsView& visits,
                           std::int64_t tokens);
DevicePages upload_pages(longstride::cuda::CudaStream& stream, const PagesView& pages,
                         const VisitsView& visits);

}  // namespace longstride::ops::cuda
