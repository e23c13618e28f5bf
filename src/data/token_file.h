// TokenFile: a flat file of raw little-endian tokens (formats: docs/data.md). Tokens, mask and
// weights are read by position; the index is held in memory, 8 bytes per document.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "data/corpus.h"
#include "data/data_file.h"
#include "data/token_type.h"

namespace longstride {

// What a manifest or an index says of a token file, in place of the user.
struct DescribedTokens {
  std::string source = {};  // path of the description
  // Where documents start, ascending, the first 0. Empty: TokenFileOptions says it.
  std::vector<std::int64_t> starts = {};
  std::int64_t vocabulary = 0;  // of the tokenizer; 0: not known
  std::vector<CheckedFile> files = {};
};

struct TokenFileOptions {
  TokenType type = TokenType::kU32;
  // Documents end after this token; it belongs to the document it ends. Excludes document_index.
  std::optional<std::int64_t> document_token = {};
  // Raw little-endian u64: the token offset of each document's start, ascending, the first 0, the
  // last at most the number of tokens (so that a closing offset is allowed). Empty: none.
  std::filesystem::path document_index = {};
  // One byte per token: 0 = the token is not a target. Empty: every token may be a target.
  std::filesystem::path loss_mask = {};
  // Float32 per token, in place of the mask. Empty: none.
  std::filesystem::path weights = {};
  // The files are then known, and not suspected to be of another format.
  std::optional<DescribedTokens> described = {};
};

class TokenFile final : public Corpus {
 public:
  // Throws Error if the file is empty or not a whole number of tokens, the index is not ascending
  // or out of range, a file has the header of another format, mask or weights have another length,
  // or document_token does not fit the type.
  explicit TokenFile(const std::filesystem::path& path, const TokenFileOptions& options = {});

  std::int64_t tokens() const override { return tokens_; }
  void read_values(std::int64_t begin, std::span<std::uint32_t> out) const override;
  std::int64_t document_end(std::int64_t token, std::int64_t limit) const override;
  void document_ends(std::int64_t begin, std::int64_t end, std::span<const std::uint32_t> values,
                     std::vector<std::int64_t>& ends) const override;
  void read_mask(std::int64_t begin, std::span<std::uint8_t> out) const override;
  bool has_mask() const override { return mask_.is_open() || has_weights(); }
  void read_weights(std::int64_t begin, std::span<float> out) const override;
  bool has_weights() const override { return weights_.is_open(); }
  std::vector<TokenRange> token_files() const override;
  std::vector<CheckedFile> checked_files() const override;
  // Of the document index; 0 without one.
  std::int64_t last_offset() const { return index_.empty() ? 0 : index_.back(); }
  void check_vocabulary(std::int64_t vocabulary) const override;
  std::string locate(std::int64_t token) const override;

 private:
  void set_document_token(std::int64_t token);
  void load_index(const std::filesystem::path& path);
  void open_targets(const TokenFileOptions& options);

  DataFile file_, mask_, weights_;
  TokenType type_;
  std::optional<DescribedTokens> described_;
  std::optional<std::uint32_t> document_token_;
  std::int64_t tokens_ = 0;
  std::vector<std::int64_t> index_;  // starts of documents; empty: no index
};

}  // namespace longstride
