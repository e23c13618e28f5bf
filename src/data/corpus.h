// Corpus: a long sequence of tokens, cut into documents, with an optional mask of the tokens that
// are targets.
//
// All positions are 64-bit token indices from 0. Tokens and masks are read from their files on
// demand. Const calls are thread-safe. If a file is truncated while a corpus is open, the call that
// reads past its end throws Error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace longstride {

// Outputs of a run, which it must not read as its data. Empty: none.
struct RunOutputs {
  // Directories that hold only outputs, if they are below the data.
  std::vector<std::filesystem::path> directories = {};
  std::vector<std::filesystem::path> files = {};
  // Directory of checkpoints: its step-N are outputs, even if it holds data too.
  std::filesystem::path checkpoints = {};
};

// A token file within a corpus.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
  int width = 4;  // bytes of a token
  std::filesystem::path path = {};
};

class Corpus {
 public:
  virtual ~Corpus() = default;
  Corpus() = default;
  Corpus(const Corpus&) = delete;
  Corpus& operator=(const Corpus&) = delete;

  virtual std::int64_t tokens() const = 0;

  // Copies tokens [begin, begin + out.size()), whatever their values.
  virtual void read_values(std::int64_t begin, std::span<std::uint32_t> out) const = 0;
  // The same. Throws Error if a value fits no vocabulary (over 2^31 - 1); SampleStream checks
  // against the model's own vocabulary.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

  // The end (one past the last token) of the document that holds `token`, or `limit` if it ends
  // later. token < limit <= tokens(). Costs at most a scan of [token, limit).
  virtual std::int64_t document_end(std::int64_t token, std::int64_t limit) const = 0;
  // Appends the end of every document that ends in (begin, end], ascending. `values` are the tokens
  // of [begin, end), or empty: then they are read as needed.
  virtual void document_ends(std::int64_t begin, std::int64_t end,
                             std::span<const std::uint32_t> values,
                             std::vector<std::int64_t>& ends) const = 0;

  // out[i] = 1 where token begin + i may be a target, 0 where the mask excludes it.
  virtual void read_mask(std::int64_t begin, std::span<std::uint8_t> out) const = 0;
  // False if read_mask returns only ones.
  virtual bool has_mask() const = 0;

  // In order, from 0 to tokens(). None for text, whose tokens are bytes.
  virtual std::vector<TokenRange> token_files() const = 0;

  // Throws Error if this corpus cannot fit a model with this vocabulary, as far as is known without
  // reading all tokens.
  virtual void check_vocabulary(std::int64_t vocabulary) const = 0;

  // Location of a token for messages: "tokens.bin: token 17".
  virtual std::string locate(std::int64_t token) const = 0;
};

struct CorpusOptions {
  std::vector<std::filesystem::path> paths = {};
  std::string format = "u32";  // "u32", "u16" or "text"
  // The rest is for token files, the last two for a single one (docs/data.md). Empty: none.
  std::optional<std::int64_t> document_token = {};
  std::filesystem::path document_index = {};
  std::filesystem::path loss_mask = {};
  RunOutputs outputs = {};  // excluded from text
};

// Opens the files that the options name; several paths are concatenated, and no document crosses
// the end of a file. For text a path may be a directory. Throws Error if a file is missing, empty
// or malformed.
std::unique_ptr<Corpus> open_corpus(const CorpusOptions& options);

}  // namespace longstride
