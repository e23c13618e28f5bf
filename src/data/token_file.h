// TokenFile: a flat file of raw little-endian u32 or u16 tokens (formats: docs/data.md). Tokens and
// mask are read by position; the index is held in memory, 8 bytes per document.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/corpus.h"
#include "data/data_file.h"

namespace longstride {

enum class TokenWidth : std::uint8_t { kU16 = 2, kU32 = 4 };

struct TokenFileOptions {
  TokenWidth width = TokenWidth::kU32;
  // Documents end after this token; it belongs to the document it ends. Excludes document_index.
  std::optional<std::int64_t> document_token = {};
  // Raw little-endian u64: the token offset of each document's start, ascending, the first 0, the
  // last at most the number of tokens (so that a closing offset is allowed). Empty: none.
  std::filesystem::path document_index = {};
  // One byte per token: 0 = the token is not a target. Empty: every token may be a target.
  std::filesystem::path loss_mask = {};
};

class TokenFile final : public Corpus {
 public:
  // Throws Error if the file is empty or not a whole number of tokens, the index is not ascending
  // or out of range, a file has the header of another format, the mask has another length, or
  // document_token does not fit the width.
  explicit TokenFile(const std::filesystem::path& path, const TokenFileOptions& options = {});

  std::int64_t tokens() const override { return tokens_; }
  void read_values(std::int64_t begin, std::span<std::uint32_t> out) const override;
  std::int64_t document_end(std::int64_t token, std::int64_t limit) const override;
  void document_ends(std::int64_t begin, std::int64_t end, std::span<const std::uint32_t> values,
                     std::vector<std::int64_t>& ends) const override;
  void read_mask(std::int64_t begin, std::span<std::uint8_t> out) const override;
  bool has_mask() const override { return mask_.is_open(); }
  std::vector<TokenRange> token_files() const override;
  void check_vocabulary(std::int64_t vocabulary) const override;
  std::string locate(std::int64_t token) const override;

 private:
  void load_index(const std::filesystem::path& path);

  DataFile file_, mask_;
  TokenWidth width_;
  std::optional<std::uint32_t> document_token_;
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> index_;  // starts of documents; empty: no index
};

}  // namespace longstride
