// How attention on the CPU is divided into tiles. Tiles depend on shapes alone, never on threads or
// memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/paged_attention.h"
#include "tensor/pages_view.h"
#include "tensor/view.h"

namespace longstride::ops::cpu {

inline constexpr float kLog2E = 1.44269504f;

// The keys of one KV page that the queries of one query page see.
struct TileMask {
  std::int64_t keys = 0;                        // keys that exist in the page
  std::int64_t page_begin = 0;                  // global index of its first key
  std::int64_t first_query = 0;                 // global index of the first query
  const std::int64_t* first_visible = nullptr;  // of the query page's tokens
  bool partial = false;                         // some (query, key) pair is hidden

  // The columns [first, last) that query `i` of the page sees.
  std::pair<std::int64_t, std::int64_t> visible(std::int64_t i) const {
    const std::int64_t first = std::clamp<std::int64_t>(first_visible[i] - page_begin, 0, keys);
    const std::int64_t last = std::clamp<std::int64_t>(first_query + i + 1 - page_begin, 0, keys);
    return {first, std::max(first, last)};
  }
};

struct TilePlan {
  std::int64_t tokens, query_heads, kv_heads, head_size, page_tokens;
  std::int64_t group;           // query heads per KV head
  std::int64_t heads_per_tile;  // of one group; the group's last tile may have fewer
  std::int64_t tiles_per_group, tiles, tile_rows, query_pages, block_pages, kv_stride;

  explicit TilePlan(const PagedAttentionShape& s)
      : tokens(s.tokens),
        query_heads(s.query_heads),
        kv_heads(s.kv_heads),
        head_size(s.head_size),
        page_tokens(s.page_tokens) {
    constexpr std::int64_t kRows = 256,
                           kBlockKeys = 512;  // a tile's scores stay in the second-level cache
    LS_CHECK(kv_heads > 0 && query_heads % kv_heads == 0, "{} query heads, {} KV heads",
             query_heads, kv_heads);
    group = query_heads / kv_heads;
    heads_per_tile = std::clamp<std::int64_t>(kRows / page_tokens, 1, group);
    tiles_per_group = (group + heads_per_tile - 1) / heads_per_tile;
    tiles = kv_heads * tiles_per_group;
    tile_rows = heads_per_tile * page_tokens;
    query_pages = (tokens + page_tokens - 1) / page_tokens;
    block_pages = std::max<std::int64_t>(1, kBlockKeys / page_tokens);
    kv_stride = 2 * kv_heads * head_size;
  }
  TilePlan(const ConstView& q_THC, const PagesView& kv)
      : TilePlan(PagedAttentionShape{.tokens = q_THC.dim(0),
                                     .query_heads = q_THC.dim(1),
                                     .kv_heads = kv.kv_heads,
                                     .head_size = kv.head_size,
                                     .page_tokens = kv.page_tokens}) {
    LS_CHECK(kv.dtype == DType::kF32, "the CPU reads F32 pages, not {}", name_of(kv.dtype));
  }

  std::int64_t queries_of(std::int64_t query_page) const {
    return std::min(page_tokens, tokens - query_page * page_tokens);
  }
  std::int64_t first_head(std::int64_t tile) const {
    return tile / tiles_per_group * group + tile % tiles_per_group * heads_per_tile;
  }
  std::int64_t heads_of(std::int64_t tile) const {
    return std::min(heads_per_tile, group - tile % tiles_per_group * heads_per_tile);
  }
  // The chunk's last page may be partly filled; its other rows have not been written.
  std::int64_t keys_of(const VisitsView& v, std::int64_t kv_page) const {
    return std::min(page_tokens, v.chunk_begin + tokens - kv_page * page_tokens);
  }
  TileMask mask(const VisitsView& v, std::int64_t query_page, std::int64_t kv_page) const {
    const std::int64_t local = query_page * page_tokens;
    TileMask m{keys_of(v, kv_page), kv_page * page_tokens, v.chunk_begin + local,
               v.first_visible + local, false};
    const std::int64_t last_first_visible = m.first_visible[queries_of(query_page) - 1];
    m.partial = last_first_visible > m.page_begin || m.page_begin + m.keys - 1 > m.first_query;
    return m;
  }

  // The visits of a query page to pages of a segment, as indices into the lists. If there are
  // several segments, all but the last contain whole blocks of pages.
  std::pair<std::int64_t, std::int64_t> visits_of(const VisitsView& v, std::int64_t query_page,
                                                  const KeySegment& segment) const {
    const std::int64_t begin = v.offsets[query_page], end = v.offsets[query_page + 1];
    if (segment.is_all()) return {begin, end};
    const auto index = [&](std::int64_t key) {
      const std::int32_t* const at = std::lower_bound(v.kv_pages + begin, v.kv_pages + end,
                                                      (key + page_tokens - 1) / page_tokens);
      return static_cast<std::int64_t>(at - v.kv_pages);
    };
    return {segment.first ? begin : index(segment.begin), segment.last ? end : index(segment.end)};
  }

  std::int64_t statistics() const { return tokens * query_heads; }
  std::int64_t panel_scratch() const { return head_size * page_tokens; }  // one head of a page
  std::int64_t forward_scratch() const {                                  // per thread
    return tile_rows * (2 * head_size + block_pages * page_tokens + 2) + panel_scratch();
  }
  // Backward, per thread: one tile's weights and their gradients, and a page's keys and values.
  // Shared: head-major copies of q, dout and dq, the row sums of dout * out, and each tile's share
  // of dk and dv for a segment of pages.
  static constexpr std::int64_t kSegmentTokens = 1024;
  std::int64_t segment_pages() const {
    return std::max<std::int64_t>(1, kSegmentTokens / page_tokens);
  }
  std::int64_t tile_scratch() const { return 2 * tile_rows * page_tokens + 3 * panel_scratch(); }
  std::int64_t rows_scratch() const { return tokens * query_heads * head_size; }
  std::int64_t share_scratch() const { return segment_pages() * 2 * page_tokens * head_size; }
  std::int64_t backward_scratch(std::int64_t threads) const {
    return threads * tile_scratch() + 3 * rows_scratch() + tokens * query_heads +
           tiles * share_scratch();
  }
};

// The first key (0) or value (1) of one head in a page; tokens are token_stride() apart.
inline float* kv_plane(const PagesView& pages, std::int64_t page, int which, std::int64_t kv_head) {
  return reinterpret_cast<float*>(pages.plane(page, which)) + kv_head * pages.head_size;
}

// Packs keys or values densely: rows `stride` apart would compete for a few sets of the cache.
inline void pack_rows(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t C,
                      float* to) {
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * C, from + r * stride, static_cast<std::size_t>(C) * sizeof(float));
}

// Copies tokens [first, first + count) of a few heads to consecutive rows, head by head.
inline void gather_rows(const ConstView& x_THC, std::int64_t first, std::int64_t count,
                        std::int64_t first_head, std::int64_t heads, float* to_MC) {
  const std::int64_t H = x_THC.dim(1), C = x_THC.dim(2);
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t t = 0; t < count; ++t, to_MC += C)
      std::memcpy(to_MC, x_THC.as<float>() + ((first + t) * H + first_head + h) * C,
                  static_cast<std::size_t>(C) * sizeof(float));
}

}  // namespace longstride::ops::cpu
