#include "tensor/key_segments.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {
namespace {

// The end of the segment that begins at `begin`.
std::int64_t segment_end(const ChunkKeys& keys, const KeyCut& cut, std::int64_t begin) {
  if (cut.tokens == 0) return keys.end();
  const std::int64_t P = keys.page_tokens, zero = cut.from_first_page ? keys.first / P * P : 0,
                     next = zero + ((begin - zero) / cut.tokens + 1) * cut.tokens;
  if (next <= keys.chunk_begin) return next;
  return cut.own_apart && begin < keys.chunk_begin ? keys.chunk_begin : keys.end();
}

KeyCut cut_of(const ChunkKeys& keys, KeyCut cut) {
  if (keys.kind != AttentionKind::kDense) return {};
  if (keys.dense.queries == keys.tokens) return cut;
  if (keys.end() - keys.first <= cut.tokens) return {};
  cut.own_apart = cut.own_apart || cut.documents_apart;
  return cut;
}

}  // namespace

std::vector<KeySegment> cut_keys(const ChunkKeys& keys, const KeyCut& wanted) {
  const KeyCut cut = cut_of(keys, wanted);
  const std::int64_t P = keys.page_tokens, even = (cut.even_tokens + P - 1) / P * P;
  std::vector<KeySegment> segments;
  for (std::int64_t begin = keys.first; begin < keys.end();) {
    const bool first = begin == keys.first,
               uneven = first && even > 0 && begin < keys.chunk_begin && begin % even != 0;
    const std::int64_t end = uneven ? std::min(keys.chunk_begin, (begin / even + 1) * even)
                                    : segment_end(keys, cut, begin);
    segments.push_back({begin, end, first, end == keys.end(), uneven});
    begin = end;
  }
  return segments;
}

void check_segments(std::span<const KeySegment> segments, const ChunkKeys& keys) {
  LS_CHECK(!segments.empty(), "no segments of keys {} to {}", keys.first, keys.end());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const KeySegment& s = segments[i];
    LS_CHECK(s.begin >= keys.first && s.begin < s.end && s.end <= keys.end() &&
                 s.first == (s.begin == keys.first) && s.last == (s.end == keys.end()) &&
                 (i == 0 || s.begin == segments[i - 1].end),
             "segment {} of {}: keys {} to {}, first {}, last {}; attended are {} to {}", i,
             segments.size(), s.begin, s.end, s.first, s.last, keys.first, keys.end());
  }
}

}  // namespace longstride
