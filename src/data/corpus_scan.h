// Scans every token of a corpus before a model is trained on it.
//
// scan_corpus counts, and compares files with their checksums; check_facts refuses invalid data,
// and fact_warnings reports what is probably a mistake. For text only sizes are checked, since
// every byte is a valid token.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/token_values.h"

namespace longstride {

struct FileFacts {
  TokenRange range;
  TokenValues values;
  std::uint32_t first = 0, last = 0;  // tokens
};

struct CorpusFacts {
  std::int64_t tokens = 0;
  std::int64_t documents = 0, median_document = 0, longest_document = 0;
  // Tokens that follow another one in their document are targets, except masked ones.
  std::int64_t targets = 0, masked = 0;
  std::int64_t document_tokens = 0;  // how often ScanOptions::document_token ends a document
  std::vector<FileFacts> files;      // none for text
};

struct ScanOptions {
  std::int64_t vocabulary = 0;
  std::optional<std::int64_t> document_token = {};
  int threads = 1;                            // started by the scan; the result is the same
  const std::atomic<bool>* stop = nullptr;    // when true, the scan returns the facts so far
  std::atomic<std::int64_t>* done = nullptr;  // progress, up to corpus.tokens()
};

// Reads all tokens, and the mask or the weights. Throws Error if a file has changed, has not the
// checksum that a manifest says, or cannot be read, or if a weight is not finite.
CorpusFacts scan_corpus(const Corpus& corpus, const ScanOptions& options);

// Throws Error if a token is outside the vocabulary, with its position and how many there are, or
// if a file holds numbers of another width than data.format says.
void check_facts(const CorpusFacts& facts, const Corpus& corpus, const ScanOptions& options);

// Warnings about documents that are probably not separated as intended.
std::vector<std::string> fact_warnings(const CorpusFacts& facts, const Corpus& corpus,
                                       const ScanOptions& options);

}  // namespace longstride
