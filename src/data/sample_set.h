// SampleSet: a corpus cut into samples, in the order of the corpus.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/corpus.h"
#include "data/sample.h"

namespace longstride {

// How sequences are filled with documents.
enum class Packing : std::uint8_t {
  kDocuments,  // one document per sample
  kStretches,  // consecutive stretches of `context` tokens, regardless of documents
  kWhole,      // whole documents, by best fit
};

// What becomes of documents that are longer than the context; stretches have no use for it.
enum class LongDocuments : std::uint8_t {
  kSplit,  // pieces of `context` tokens, and one of the rest
  kCut,    // the first `context` tokens
  kDrop,   // nothing
};

struct SampleOptions {
  std::int64_t context = 0;  // maximum tokens of a sample, >= 2
  Packing pack = Packing::kStretches;
  LongDocuments long_documents = LongDocuments::kSplit;
  // Leaves out the last stretch if it is a stub: at most two tokens, or less than 1/16 of the
  // context. A corpus of one stretch keeps it.
  bool drop_stub = false;
  // For SampleStream. A new permutation of all samples of a corpus in each epoch, from (seed,
  // corpus, epoch). False: in the order of the corpus.
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::int64_t vocabulary = 0;  // tokens must lie in [0, vocabulary)
};

// What the samples of an epoch leave out.
struct LeftOut {
  std::int64_t documents = 0;  // that are longer than the context, and dropped or cut
  std::int64_t tokens = 0;     // of these
  std::int64_t stub = 0;       // tokens
};

// Const calls are thread-safe. The corpus must outlive the set. Holds one 64-bit integer per
// sample, or with kWhole one per document and one per sample.
class SampleSet {
 public:
  // Skips samples without a target; with kWhole, also documents without one. There may be none
  // left. Throws Error if the vocabulary cannot fit. Reads each sample up to its first target, and
  // except for stretches all document ends, block by block.
  SampleSet(const Corpus& corpus, const SampleOptions& options);

  std::int64_t size() const;
  // Throws Error naming file, token, value and vocabulary if a token is outside it.
  Sample sample(std::int64_t k) const;
  // sample(k).counted_targets() and sample(k).size(), holding only one block at a time.
  std::int64_t targets_of(std::int64_t k) const;
  std::int64_t tokens_of(std::int64_t k) const;
  const LeftOut& left_out() const { return left_out_; }

 private:
  // First tokens of the pieces that sample k consists of.
  std::span<const std::int64_t> pieces_of(std::int64_t k) const;
  std::int64_t end_of(std::int64_t begin) const;
  void cut_stretches();
  // The pieces of all documents, or, with lengths != nullptr, their lengths too.
  void cut_documents(std::vector<std::int64_t>* lengths);
  void pack_whole();
  bool is_stub(std::int64_t begin) const;
  bool any_unmasked(std::int64_t begin, std::int64_t end) const;
  std::int64_t unmasked(std::int64_t begin, std::int64_t end) const;
  // Number of tokens of (begin, end] that are targets of the token before them; end < tokens().
  std::int64_t targets_in(std::int64_t begin, std::int64_t end) const;
  // The last token that may be a target of a piece that ends at `end`.
  std::int64_t last_target(std::int64_t end) const;
  void append(std::int64_t begin, Sample& sample) const;
  void check_tokens(std::int64_t begin, std::span<const std::uint32_t> values) const;

  const Corpus& corpus_;
  SampleOptions options_;
  std::vector<TokenRange> files_;
  std::vector<std::int64_t> begins_;  // first token of each piece
  // With kWhole: sample k has the pieces from starts_[k] to starts_[k + 1] - 1. Else piece k alone.
  std::vector<std::int64_t> starts_;
  LeftOut left_out_;
};

}  // namespace longstride
