// Processes that share the heads of a stage (parallel.heads): each attends with its heads, for all
// tokens of a chunk, and does everything else for its slice of the chunk's tokens. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>

namespace longstride {

// Of a chunk of T tokens. A process without tokens works on a row that counts for nothing, so that
// no tensor is empty: it copies the chunk's last token, and its gradients are zero.
struct TokenSlice {
  std::int64_t begin = 0;   // in the chunk
  std::int64_t rows = 0;    // of its tensors, at least one
  std::int64_t tokens = 0;  // as many, or none
};

struct HeadShare {
  std::int64_t ranks = 1, rank = 0;

  bool several() const { return ranks > 1; }
  // Slices follow each other; those of the first processes may be longer by one.
  TokenSlice slice_of(std::int64_t of, std::int64_t T) const {
    const std::int64_t each = T / ranks, rest = T % ranks;
    const std::int64_t begin = of * each + std::min(of, rest), tokens = each + (of < rest ? 1 : 0);
    return {std::min(begin, T - 1), std::max<std::int64_t>(1, tokens), tokens};
  }
  TokenSlice slice(std::int64_t T) const { return slice_of(rank, T); }
  std::int64_t rows(std::int64_t T) const { return slice(T).rows; }
  // Of any process.
  std::int64_t most_rows(std::int64_t T) const { return slice_of(0, T).rows; }
  bool operator==(const HeadShare&) const = default;
};

}  // namespace longstride
