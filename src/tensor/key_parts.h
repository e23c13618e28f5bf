// How attention over a long range of keys is cut into parts that are computed one after another, so
// that no more than one of them has to be on the device. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace longstride {

// Keys [begin, end) of what a chunk's queries see. The last part holds the chunk's own keys.
struct KeyPart {
  std::int64_t begin = 0, end = std::numeric_limits<std::int64_t>::max();
  bool first = true, last = true;
  bool uneven = false;  // those before the first multiple of KeyCut::even_tokens

  bool is_all() const { return first && last; }
  bool operator==(const KeyPart&) const = default;
};

// Parts end at multiples of `tokens`, 0: there is only one. The cut is part of the arithmetic: it
// depends on shapes alone, never on memory.
struct KeyCut {
  std::int64_t tokens = 0;
  bool from_first_page = false;  // multiples count from the first key's page, else from key 0
  bool own_apart = false;        // the chunk's own keys are a part of their own
  bool documents_apart = false;  // they are where documents begin within the chunk
  // Keys before the chunk and before the first multiple of this, in whole pages, are a part of
  // their own, so that the lengths of the others are few wherever a document begins. 0: they are
  // not.
  std::int64_t even_tokens = 0;

  bool operator==(const KeyCut&) const = default;
};

// Where documents begin within a chunk, only its first queries see keys before it. `keys` are those
// from the first of them to the chunk's end: what is no longer than a part is not cut.
constexpr KeyCut cut_with_documents(KeyCut cut, std::int64_t keys) {
  if (keys <= cut.tokens) return {};
  cut.own_apart = cut.own_apart || cut.documents_apart;
  return cut;
}

// Calls f(KeyPart) for the parts of keys [first_key, chunk_begin + tokens), in order.
template <class F>
void for_key_parts(std::int64_t first_key, std::int64_t chunk_begin, std::int64_t tokens,
                   std::int64_t page_tokens, const KeyCut& cut, const F& f) {
  const std::int64_t end = chunk_begin + tokens,
                     zero = cut.from_first_page ? first_key / page_tokens * page_tokens : 0,
                     even = (cut.even_tokens + page_tokens - 1) / page_tokens * page_tokens;
  for (std::int64_t begin = first_key; begin < end;) {
    const bool first = begin == first_key,
               uneven = first && even > 0 && begin < chunk_begin && begin % even != 0;
    std::int64_t next =
        cut.tokens == 0 ? end : zero + ((begin - zero) / cut.tokens + 1) * cut.tokens;
    if (uneven)
      next = std::min(chunk_begin, (begin / even + 1) * even);
    else if (next > chunk_begin)
      next = cut.own_apart && begin < chunk_begin ? chunk_begin : end;
    f(KeyPart{begin, next, first, next == end, uneven});
    begin = next;
  }
}

}  // namespace longstride
