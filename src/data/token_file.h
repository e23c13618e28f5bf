// TokenFile: a flat file of raw little-endian u32 or u16 tokens, memory-mapped (docs/data.md has
// the formats).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/files.h"
#include "data/corpus.h"

namespace longstride {

enum class TokenWidth : std::uint8_t { kU16 = 2, kU32 = 4 };

struct TokenFileOptions {
  TokenWidth width = TokenWidth::kU32;
  // Documents end after this token; it belongs to the document it ends. Excludes document_index.
  std::optional<std::int64_t> document_token = {};
  // Raw little-endian u64: the token offset of each document's start, ascending, the first 0, the
  // last at most the number of tokens (so that a closing offset is allowed). Empty: none.
  std::filesystem::path document_index = {};
  // One byte per token: 0 = the token is not a target. Empty: every token counts.
  std::filesystem::path loss_mask = {};
};

class TokenFile final : public Corpus {
 public:
  // Throws Error if the file is empty or not a whole number of tokens, the index is not ascending
  // or out of range, the mask has another length, or document_token does not fit the width.
  explicit TokenFile(const std::filesystem::path& path, const TokenFileOptions& options = {});

  std::int64_t tokens() const override { return tokens_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::int64_t document_end(std::int64_t token, std::int64_t limit) const override;
  void read_mask(std::int64_t begin, std::span<std::uint8_t> out) const override;
  bool has_mask() const override { return !mask_.bytes().empty(); }
  void check_vocabulary(std::int64_t vocabulary) const override;
  std::string locate(std::int64_t token) const override;

 private:
  void check_index() const;
  std::uint32_t value(std::int64_t token) const;
  std::int64_t index_entry(std::int64_t i) const;
  std::int64_t index_size() const;
  std::int64_t index_end(std::int64_t token, std::int64_t limit) const;

  MappedFile file_, index_, mask_;
  TokenWidth width_;
  std::optional<std::uint32_t> document_token_;
  std::int64_t tokens_ = 0;
};

}  // namespace longstride
