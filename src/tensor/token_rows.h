// Which rows of a chunk belong to which token: what the embedding's gradient is summed by. The host
// sorts a chunk's tokens once, so that no thread of a device has to search for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longstride {

// A token's rows are places [begin, begin + count) of the list of rows, ascending. Lies in memory
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

  // Valid until the next build. Tokens of most rows first, so that what takes longest begins first.
  std::span<const TokenGroup> groups() const { return groups_; }
  // All rows of the chunk, those of a token together.
  std::span<const std::int32_t> rows() const { return rows_; }

 private:
  std::vector<std::uint64_t> sorted_;  // token, row
  std::vector<TokenGroup> groups_;
  std::vector<std::int32_t> rows_;
};

}  // namespace longstride
