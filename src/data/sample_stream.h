// SampleStream: cuts a corpus into training samples and puts them in order.
//
// A data position is one integer: sample(i) is a pure function of (corpus, options, i), for any
// i >= 0; sample i is in epoch i / n. Resuming a run needs only the next i.
#pragma once

#include <cstdint>
#include <vector>

#include "data/corpus.h"

namespace longstride {

// The target of a token that has none: the end of a document, or masked.
inline constexpr std::int32_t kNoTarget = -100;

struct Sample {
  std::vector<std::int32_t> tokens;
  // Same length as tokens: the next token of the same document, or kNoTarget. For the last token it
  // is the next one in the corpus, if the document continues there.
  std::vector<std::int32_t> targets;
  // Where each document (or part of one) begins in `tokens`; ascending, the first 0.
  std::vector<std::int64_t> document_starts;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t counted_targets() const;
  // Lengths between the document starts.
  std::vector<std::int64_t> document_lengths() const;
};

struct SampleOptions {
  std::int64_t context = 0;  // maximum tokens of a sample, >= 2
  // True: consecutive stretches of `context` tokens, regardless of documents; the last one may be
  // shorter. False: one document per sample, in pieces of at most `context`.
  bool pack = true;
  // A new permutation of all samples in each epoch, from (seed, epoch). False: in the order of the
  // corpus.
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::int64_t vocabulary = 0;  // tokens must lie in [0, vocabulary)
};

// Not thread-safe: it caches the permutation of the latest epoch. The corpus must outlive the
// stream. Holds up to two 64-bit integers per sample.
class SampleStream {
 public:
  // Skips samples without a target; throws Error if none is left or the vocabulary cannot fit.
  // Reads each sample up to its first target, and with pack = false all document ends, block by
  // block.
  SampleStream(const Corpus& corpus, const SampleOptions& options);

  // sample(i).counted_targets(), holding only one block of the sample at a time.
  std::int64_t counted_targets(std::int64_t i);
  // sample(i).size(), likewise.
  std::int64_t size_of(std::int64_t i);
  // Samples of an epoch, n >= 1.
  std::int64_t samples_per_epoch() const { return static_cast<std::int64_t>(begins_.size()); }
  // Throws Error naming file, token, value and vocabulary if a token is outside it.
  Sample sample(std::int64_t i);

 private:
  std::int64_t begin_of(std::int64_t i);
  std::int64_t end_of(std::int64_t begin) const;
  void cut_stretches();
  void cut_documents();
  // Number of tokens of [begin, end) that are not masked.
  std::int64_t unmasked(std::int64_t begin, std::int64_t end) const;
  // Number of tokens of (begin, end] that are targets of the token before them; end < tokens().
  std::int64_t targets_in(std::int64_t begin, std::int64_t end) const;
  // The last token that may be a target of the sample [begin, end).
  std::int64_t last_target(std::int64_t end) const;
  std::int64_t index_in_epoch(std::int64_t i);
  void check_tokens(std::int64_t begin, std::span<const std::uint32_t> values) const;

  const Corpus& corpus_;
  SampleOptions options_;
  std::vector<std::int64_t> begins_;  // first token of each sample
  std::vector<std::int64_t> order_;   // the permutation of epoch_; unused without shuffle
  std::int64_t epoch_ = -1;
};

}  // namespace longstride
