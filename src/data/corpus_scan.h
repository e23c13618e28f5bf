// A look at every token of a corpus before a model is trained on it.
//
// scan_corpus counts and judges nothing; check_facts says what cannot be trained on, and
// fact_warnings what is probably not meant. Text has no values to look at: only its sizes are.
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
  // Tokens that follow another one in their document are targets, but for the masked ones.
  std::int64_t targets = 0, masked = 0;
  std::int64_t document_tokens = 0;  // how often ScanOptions::document_token ends a document
  std::vector<FileFacts> files;      // none for text
};

struct ScanOptions {
  std::int64_t vocabulary = 0;
  std::optional<std::int64_t> document_token = {};
  int threads = 1;                            // of the scan's own; the result does not depend on it
  const std::atomic<bool>* stop = nullptr;    // where it becomes true, the facts are those so far
  std::atomic<std::int64_t>* done = nullptr;  // grows to corpus.tokens()
};

// Reads all tokens and the mask. Throws Error where a file has changed or cannot be read.
CorpusFacts scan_corpus(const Corpus& corpus, const ScanOptions& options);

// Throws Error where a token is outside the vocabulary, with its place and how many there are, or
// where a file holds numbers of another width than data.format says.
void check_facts(const CorpusFacts& facts, const Corpus& corpus, const ScanOptions& options);

// Lines about documents that are probably cut in another place than was meant.
std::vector<std::string> fact_warnings(const CorpusFacts& facts, const Corpus& corpus,
                                       const ScanOptions& options);

}  // namespace longstride
