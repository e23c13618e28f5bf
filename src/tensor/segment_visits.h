// The visit lists of one segment of a chunk's keys, where attention is dense.
#pragma once

#include <cstdint>

#include "tensor/visit_buffers.h"

namespace longstride {

// Reused from call to call: after the largest chunk, building allocates nothing. Not thread-safe.
class SegmentVisits {
 public:
  // Of the chunk's own keys.
  void build_own(const VisitsView& visits, std::int64_t tokens, std::int64_t page_tokens);
  // Of keys [visits.dense.first, end), where `end` is a page's and not behind the chunk's begin.
  void build_before(const VisitsView& visits, std::int64_t tokens, std::int64_t page_tokens,
                    std::int64_t end);
  // Valid until the next build.
  VisitsView view() const { return lists_.view(); }

 private:
  VisitBuffers lists_;
};

}  // namespace longstride
