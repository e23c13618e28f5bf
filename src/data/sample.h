// Sample: one training sequence. Plain data.
#pragma once

#include <cstdint>
#include <vector>

namespace longstride {

// The target of a token that has none: the end of a document, or masked.
inline constexpr std::int32_t kNoTarget = -100;

struct Sample {
  std::vector<std::int32_t> tokens;
  // Same length as tokens: the next token of the same document, or kNoTarget. For the last token of
  // a document that was cut it is the next one in the corpus.
  std::vector<std::int32_t> targets;
  // Where each document (or part of one) begins in `tokens`; ascending, the first 0.
  std::vector<std::int64_t> document_starts;
  // Same length as targets, if the corpus has weights: that of each target, 0 for kNoTarget. Empty:
  // every target has the weight 1.
  std::vector<float> weights = {};

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t counted_targets() const;
  // Lengths between the document starts.
  std::vector<std::int64_t> document_lengths() const;
};

}  // namespace longstride
