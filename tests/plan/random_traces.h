// Random traces for tests of placement.
#pragma once

#include "base/random.h"
#include "plan/placement.h"

namespace longstride {

inline std::int64_t pick(Random& random, std::int64_t least, std::int64_t most) {
  return least +
         static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

// As a workspace records it: every event takes or releases one tensor. `bytes` draws a size.
template <class Bytes>
WorkspaceTrace random_trace(Random& random, std::int64_t requests, const Bytes& bytes) {
  WorkspaceTrace trace;
  std::vector<std::size_t> live;
  std::int64_t clock = 0;
  while (static_cast<std::int64_t>(trace.size()) < requests || !live.empty()) {
    const bool take =
        static_cast<std::int64_t>(trace.size()) < requests && (live.empty() || random.below(5) < 3);
    if (take) {
      live.push_back(trace.size());
      trace.push_back({"tensor", bytes(random), clock++, -1});
    } else {
      const auto at = live.begin() + pick(random, 0, static_cast<std::int64_t>(live.size()) - 1);
      trace[*at].end = clock++;
      live.erase(at);
    }
  }
  return trace;
}

// Sizes from 1 byte to 64 KiB, some of them 0.
inline WorkspaceTrace random_trace(Random& random, std::int64_t requests) {
  return random_trace(random, requests, [](Random& r) {
    return r.below(10) == 0 ? 0 : pick(r, 1, std::int64_t{1} << pick(r, 1, 16));
  });
}

// Sizes of 1 to `most` units of alignment.
inline WorkspaceTrace random_units(Random& random, std::int64_t requests, std::int64_t most) {
  return random_trace(random, requests,
                      [most](Random& r) { return pick(r, 1, most) * kPlacementAlignment; });
}

// One for which no greedy order reaches the bound.
inline WorkspaceTrace hard_trace(Random& random, std::int64_t requests, std::int64_t most) {
  for (;;) {
    WorkspaceTrace trace = random_units(random, requests, most);
    const std::int64_t bound = live_bytes_bound(trace);
    if (place_by_orders(trace, bound).bytes > bound) return trace;
  }
}

}  // namespace longstride
