// Corpus: a long sequence of tokens, cut into documents, with an optional mask of the tokens that
// are targets, or optional weights of the targets.
//
// All positions are 64-bit token indices from 0. Tokens, masks and weights are read from their
// files on demand. Const calls are thread-safe. If a file is truncated while a corpus is open, the
// call that reads past its end throws Error.
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
  // Bytes of a token, as the user says; 0: a manifest or an index says what the file holds.
  int width = 4;
  std::filesystem::path path = {};
};

// A file whose checksum is known. `begin`: the corpus's first token that it is for.
struct CheckedFile {
  std::int64_t begin = 0;
  std::filesystem::path path = {};
  std::string xxh3 = {};    // 16 hexadecimal digits
  std::string source = {};  // what says so: the path of a manifest
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

  // out[i] = the weight of token begin + i as a target, finite and of any sign; 0 exactly where
  // read_mask gives 0. Throws Error if a stored weight is not finite.
  virtual void read_weights(std::int64_t begin, std::span<float> out) const;
  // False if read_weights returns only zeros and ones: those of the mask.
  virtual bool has_weights() const { return false; }

  // In order, from 0 to tokens(). None for text, whose tokens are bytes.
  virtual std::vector<TokenRange> token_files() const = 0;

  // Files to compare with their checksums, in the order of `begin`: check_file (file_checksums.h).
  virtual std::vector<CheckedFile> checked_files() const { return {}; }

  // Throws Error if this corpus cannot fit a model with this vocabulary, as far as is known without
  // reading all tokens.
  virtual void check_vocabulary(std::int64_t vocabulary) const = 0;

  // Location of a token for messages: "tokens.bin: token 17".
  virtual std::string locate(std::int64_t token) const = 0;
};

// How messages call the settings below.
struct CorpusKeys {
  const char* format = "data.format";
  const char* document_token = "data.document_token";
  const char* document_index = "data.document_index";
  const char* loss_mask = "data.loss_mask";
};

struct CorpusOptions {
  std::vector<std::filesystem::path> paths = {};
  // "u32", "u16", "text" or "megatron", for paths other than prepared directories. Empty: "u32".
  std::string format = {};
  // The rest is for token files, the last two for a single one (docs/data.md). Empty: none.
  std::optional<std::int64_t> document_token = {};
  std::filesystem::path document_index = {};
  std::filesystem::path loss_mask = {};
  RunOutputs outputs = {};  // excluded from text
  // Of prepared directories: "train" or "eval". Those without an "eval" are read by their "train".
  std::string split = "train";
  // The format and the document token are also for other data, so they are not refused if all of
  // `paths` are prepared directories.
  bool shared_format = false;
  CorpusKeys keys = {};
};

// Opens the files that the options name; several paths are concatenated, and no document crosses
// the end of a file. For text a path may be a directory. A directory with a manifest.json of
// longstride is prepared data, which need no other option. Throws Error if a file is missing, empty
// or malformed.
std::shared_ptr<const Corpus> open_corpus(const CorpusOptions& options);
// Likewise, as one corpus per path.
std::vector<std::shared_ptr<const Corpus>> open_sources(const CorpusOptions& options);
// Several corpora as one, in their order; at least one.
std::shared_ptr<const Corpus> join_sources(std::vector<std::shared_ptr<const Corpus>> sources);

}  // namespace longstride
