// Random layouts for property tests: documents, pages, chunks, a short last chunk, and windows.
#pragma once

#include <algorithm>

#include "base/random.h"
#include "schedule/layout.h"

namespace longstride::testing {

inline std::int64_t pick(Random& random, std::int64_t least, std::int64_t most) {
  return least +
         static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

inline SequenceLayout random_layout(Random& random) {
  SequenceLayout layout;
  layout.page_tokens = pick(random, 1, 6);
  layout.chunk_tokens = layout.page_tokens * pick(random, 1, 5);
  layout.tokens = pick(random, 1, 90);
  const std::int64_t documents = pick(random, 1, 6);
  for (std::int64_t d = 1; d < documents && layout.tokens > 1; ++d)
    layout.document_starts.push_back(pick(random, 1, layout.tokens - 1));
  auto& starts = layout.document_starts;
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return layout;
}

// 0 (dense) half of the time.
inline std::int64_t random_window(Random& random) {
  return random.below(2) == 0 ? 0 : pick(random, 1, 40);
}

}  // namespace longstride::testing
