// How attention over a long range of keys is cut into segments that are computed one after another,
// so that only one of them has to be on the device. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/pages_view.h"

namespace longstride {

// Keys [begin, end) among those that a chunk's queries attend to. The last segment contains the
// chunk's own keys.
struct KeySegment {
  std::int64_t begin = 0, end = 0;
  bool first = true, last = true;
  bool uneven = false;  // the keys before the first multiple of KeyCut::even_tokens

  bool is_all() const { return first && last; }
  bool operator==(const KeySegment&) const = default;
};

// Where segments end: at multiples of `tokens`; 0: a single segment. The cut decides the order of
// additions, so it depends on shapes alone, never on memory.
struct KeyCut {
  std::int64_t tokens = 0;
  bool from_first_page = false;  // multiples count from the first key's page, else from key 0
  bool own_apart = false;        // the chunk's own keys are a segment of their own
  bool documents_apart = false;  // the same, but only if documents begin within the chunk
  // Keys before the chunk and before the first multiple of this, rounded up to whole pages, are a
  // segment of their own: then the other segments have few distinct lengths wherever a document
  // begins. 0: no such segment.
  std::int64_t even_tokens = 0;

  bool operator==(const KeyCut&) const = default;
};

// What the queries of a chunk attend to: keys [first, chunk_begin + tokens).
struct ChunkKeys {
  AttentionKind kind = AttentionKind::kWindow;
  DenseKeys dense = {};    // kDense
  std::int64_t first = 0;  // kDense: equals dense.first
  std::int64_t chunk_begin = 0, tokens = 0, page_tokens = 0;

  std::int64_t end() const { return chunk_begin + tokens; }
};

// The keys of a chunk of `tokens` queries, from its visit lists.
inline ChunkKeys chunk_keys(const VisitsView& visits, std::int64_t tokens,
                            std::int64_t page_tokens) {
  return {.kind = visits.kind,
          .dense = visits.dense,
          .first = visits.first_visible[0],
          .chunk_begin = visits.chunk_begin,
          .tokens = tokens,
          .page_tokens = page_tokens};
}

// The only place where keys are cut. Attention that is not dense has a single segment. If documents
// begin within the chunk, only its first queries attend to keys before it; then keys that fit into
// one segment are not cut.
std::vector<KeySegment> cut_keys(const ChunkKeys& keys, const KeyCut& cut);

// Fails unless the segments follow each other without gap or overlap within the chunk's keys, and
// `first` and `last` are set exactly on those that begin at the first key and end at the last.
void check_segments(std::span<const KeySegment> segments, const ChunkKeys& keys);

// Consecutive segments merged into one.
inline KeySegment joined(std::span<const KeySegment> segments) {
  return {segments.front().begin, segments.back().end, segments.front().first,
          segments.back().last};
}

}  // namespace longstride
