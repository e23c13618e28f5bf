// What the visit lists of a dense layer say, in a few numbers; and the lists of a part of that.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/visit_buffers.h"

namespace longstride {

// The first `queries` of a chunk see every key from `first` on, up to themselves. The others are of
// documents that begin within the chunk, and see keys of the chunk alone.
struct SeenKeys {
  std::int64_t first = 0, queries = 0;
};
// Nothing where the lists say anything else: windows, sparse lists, a chunk that sees no key before
// it and in which documents begin.
std::optional<SeenKeys> seen_keys(const VisitsView& visits, std::int64_t tokens,
                                  std::int64_t page_tokens);

// The lists of some of the keys, where seen_keys knows them all. Reused from call to call: after
// the largest chunk, building allocates nothing. Not thread-safe.
class PartVisits {
 public:
  // Of the chunk's own keys.
  void build_own(const VisitsView& visits, std::int64_t tokens, std::int64_t page_tokens);
  // Of keys [seen.first, end), where `end` is a page's and not behind the chunk's begin.
  void build_before(const VisitsView& visits, std::int64_t tokens, std::int64_t page_tokens,
                    const SeenKeys& seen, std::int64_t end);
  // Valid until the next build.
  VisitsView view() const { return lists_.view(); }

 private:
  VisitBuffers lists_;
};

}  // namespace longstride
