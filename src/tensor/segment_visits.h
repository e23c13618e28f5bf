// Visit lists of one segment of a chunk's keys, for dense attention.
#pragma once

#include <cstdint>

#include "tensor/visit_buffers.h"

namespace longstride {

// Reused from call to call: after the largest chunk, building allocates nothing. Not thread-safe.
class SegmentVisits {
 public:
  // Builds the lists of the chunk's own keys.
  void build_own(const VisitsView& visits, std::int64_t tokens, std::int64_t page_tokens);
  // Builds those of keys [visits.dense.first, end); `end` is a page boundary, at most chunk_begin.
  void build_before(const VisitsView& visits, std::int64_t tokens, std::int64_t page_tokens,
                    std::int64_t end);
  // Valid until the next build.
  VisitsView view() const { return lists_.view(); }

 private:
  VisitBuffers lists_;
};

}  // namespace longstride
