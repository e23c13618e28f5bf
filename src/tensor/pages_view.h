// Plain-data views of page tables and visit lists, as attention kernels read them. Nothing here
// owns memory.
//
// A page holds P tokens of one layer: [P][2][K][C], for each token its rotated key (or that key's
// gradient) and its value. So pages in consecutive slots form one tensor with a uniform stride.
// Token t of the sequence is in logical page t / P at row t % P.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace longstride {

struct PagesView {
  std::byte* base = nullptr;            // slot 0 of the pool
  const std::int32_t* slots = nullptr;  // logical page -> slot; -1 if the page does not exist
  std::int64_t page_bytes = 0;
  std::int64_t page_tokens = 0;  // P
  std::int64_t kv_heads = 0;     // K
  std::int64_t head_size = 0;    // C
  DType dtype = DType::kF32;
  bool centred = false;  // coded pages with centres (tensor/page_codes.h)

  std::int64_t row_elements() const { return kv_heads * head_size; }  // of one token's keys
  // Elements from a token's row to the next token's.
  std::int64_t token_stride() const { return 2 * row_elements(); }
  // First row of (page, keys or values: 0 or 1).
  std::byte* plane(std::int64_t page, int which) const {
    return base + static_cast<std::int64_t>(slots[page]) * page_bytes +
           which * row_elements() * size_of(dtype);
  }
};

// Pages before a chunk that are in 8 bits (tensor/page_codes.h), as attention gets them. A view
// without a base: that kind is not coded. Pages of the chunk itself are not among them.
struct CodedView {
  PagesView kv = {}, gradients = {};
  // Logical pages, ascending. Visited pages that are not in the second list have their gradients in
  // the wide pages themselves.
  std::span<const std::int32_t> kv_pages = {}, gradient_pages = {};
  bool any() const { return kv.base != nullptr || gradients.base != nullptr; }
};

// The form of a layer's attention in one chunk.
enum class AttentionKind : std::uint8_t {
  kDense,   // queries that attend to keys before the chunk share one first key (DenseKeys)
  kWindow,  // every query attends to a range of keys that ends with itself
  kSparse,  // every query page attends to selected pages before the chunk, and to the chunk
};

// kDense: the first `queries` queries of the chunk attend from key `first` to themselves. The
// others belong to documents that begin within the chunk, and attend only to keys of the chunk.
struct DenseKeys {
  std::int64_t first = 0, queries = 0;
  bool operator==(const DenseKeys&) const = default;
};

// For each query page of a chunk, the KV pages it visits, ascending; and the transpose.
// Query t (global index) sees key s of a visited page exactly if first_visible[t - chunk_begin] <=
// s <= t.
// kSparse: a list holds the pages selected for that query page, all before the chunk, then every
// page of the chunk from its first to the query page itself.
struct VisitsView {
  AttentionKind kind = AttentionKind::kSparse;
  DenseKeys dense = {};          // kDense
  std::int64_t chunk_begin = 0;  // global index of the chunk's first token, a multiple of P
  std::int64_t query_pages = 0;
  const std::int64_t* offsets = nullptr;        // [query_pages + 1] into kv_pages
  const std::int32_t* kv_pages = nullptr;       // logical KV pages
  const std::int64_t* first_visible = nullptr;  // [T], never decreasing
  std::int64_t visited_pages = 0;               // distinct KV pages, ascending
  const std::int32_t* visited = nullptr;        // [visited_pages]
  const std::int64_t* back_offsets = nullptr;   // [visited_pages + 1] into back_queries
  const std::int32_t* back_queries =
      nullptr;  // query pages of the chunk that visit visited[i], ascending
};

}  // namespace longstride
