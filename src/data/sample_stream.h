// SampleStream: the samples of one corpus, or of several in given shares, in the order of training.
//
// A data position is one integer: sample(i) is a pure function of (corpora, options, i), for any
// i >= 0. Resuming a run needs only the next i. Every corpus is walked in epochs of its own: its
// j-th sample is in epoch j / n, where n is the number of its samples.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/corpus.h"
#include "data/mixture.h"
#include "data/sample.h"
#include "data/sample_set.h"

namespace longstride {

// Not thread-safe: it caches the permutation of the latest epoch. The corpora must outlive the
// stream. Holds one 64-bit integer per sample beside those of SampleSet.
class SampleStream {
 public:
  // Throws Error if the corpus has nothing to learn or the vocabulary cannot fit.
  SampleStream(const Corpus& corpus, const SampleOptions& options);
  // Takes samples from each source by its share, to within one sample at every position. As many
  // shares as sources.
  SampleStream(const std::vector<std::shared_ptr<const Corpus>>& sources,
               const std::vector<double>& shares, const SampleOptions& options);

  // sample(i).counted_targets(), holding only one block of the sample at a time.
  std::int64_t counted_targets(std::int64_t i);
  // sample(i).size(), likewise.
  std::int64_t size_of(std::int64_t i);
  // Samples of all sources, n >= 1. For a single one, those of an epoch.
  std::int64_t samples_per_epoch() const;
  // Samples of each source.
  std::vector<std::int64_t> samples_of_sources() const;
  // Throws Error naming file, token, value and vocabulary if a token is outside it.
  Sample sample(std::int64_t i);
  // Of all sources.
  LeftOut left_out() const;

 private:
  struct Source {
    SampleSet samples;
    std::vector<std::int64_t> order = {};  // the permutation of `epoch`; unused without shuffle
    std::int64_t epoch = -1;
  };
  struct Found {
    const SampleSet& samples;
    std::int64_t index;
  };
  void add(const Corpus& corpus);
  Found find(std::int64_t i);
  std::int64_t index_in_epoch(std::size_t source, std::int64_t i);

  SampleOptions options_;
  std::vector<Source> sources_;
  std::optional<Mixture> mixture_;
};

}  // namespace longstride
