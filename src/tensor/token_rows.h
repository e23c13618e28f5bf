// Which rows of a chunk belong to which token, for summing the embedding's gradient. The host sorts
// a chunk's tokens once, so that no device thread has to search for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longstride {

// A token's rows are entries [begin, begin + count) of the list of rows, ascending. Kernels read it
// as four I32.
struct TokenGroup {
  std::int32_t token, begin, count;
  std::int32_t first;  // the row at `begin`

  bool operator==(const TokenGroup&) const = default;
};
static_assert(sizeof(TokenGroup) == 16);

// Reused from chunk to chunk: after the largest one, building allocates nothing. Not thread-safe.
class TokenRows {
 public:
  void reserve(std::int64_t tokens);
  void build(std::span<const std::int32_t> tokens);

  // Valid until the next build. Tokens with the most rows come first, so that the longest work
  // starts first.
  std::span<const TokenGroup> groups() const { return groups_; }
  // All rows of the chunk, grouped by token.
  std::span<const std::int32_t> rows() const { return rows_; }

 private:
  std::vector<std::uint64_t> sorted_;  // token, row
  std::vector<TokenGroup> groups_;
  std::vector<std::int32_t> rows_;
};

}  // namespace longstride
