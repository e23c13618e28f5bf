#include "data/sample_stream.h"

#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace longstride {
namespace {

// Separates the permutations from other uses of the same seed.
constexpr std::uint64_t kShuffleStream = std::uint64_t{0x64617461} << 32;
// Separates the sources of a mix; the first one has the order that it would have alone.
constexpr std::uint64_t kSourceSeeds = 0x9e3779b97f4a7c15;

}  // namespace

SampleStream::SampleStream(const Corpus& corpus, const SampleOptions& options) : options_(options) {
  add(corpus);
}

SampleStream::SampleStream(const std::vector<std::shared_ptr<const Corpus>>& sources,
                           const std::vector<double>& shares, const SampleOptions& options)
    : options_(options), mixture_(shares) {
  LS_CHECK(sources.size() == shares.size(), "{} sources, {} shares", sources.size(), shares.size());
  for (const auto& source : sources) add(*source);
}

void SampleStream::add(const Corpus& corpus) {
  if (options_.context < 2)
    throw Error(fmt::format("a context of {} tokens has nothing to learn from", options_.context),
                "set training.context to 2 or more");
  sources_.push_back({SampleSet(corpus, options_)});
  const SampleSet& samples = sources_.back().samples;
  if (samples.size() > 0) return;
  const LeftOut& left = samples.left_out();
  if (options_.long_documents == LongDocuments::kDrop && left.documents > 0)
    throw Error(fmt::format("{} leaves nothing to learn: {} documents are longer than the context "
                            "of {} tokens, and the others hold no target",
                            "data.long = \"drop\"", left.documents, options_.context),
                "raise training.context, or set data.long to \"split\" or \"cut\"");
  throw Error(fmt::format("{} tokens of data hold nothing to learn: no token follows another in "
                          "its document and is left by the loss mask",
                          corpus.tokens()),
              "check the data, its document boundaries and its loss mask");
}

std::int64_t SampleStream::index_in_epoch(std::size_t number, std::int64_t i) {
  Source& source = sources_[number];
  const std::int64_t n = source.samples.size(), epoch = i / n;
  if (!options_.shuffle) return i % n;
  if (epoch != source.epoch) {
    source.order.resize(static_cast<std::size_t>(n));
    std::iota(source.order.begin(), source.order.end(), std::int64_t{0});
    Random random(options_.seed + kSourceSeeds * number,
                  kShuffleStream + static_cast<std::uint64_t>(epoch));
    for (std::size_t k = source.order.size(); k > 1; --k)
      std::swap(source.order[k - 1], source.order[random.below(k)]);
    source.epoch = epoch;
  }
  return source.order[static_cast<std::size_t>(i % n)];
}

SampleStream::Found SampleStream::find(std::int64_t i) {
  LS_CHECK(i >= 0, "sample {}", i);
  const Mixture::Place place = mixture_ ? mixture_->at(i) : Mixture::Place{0, i};
  return {sources_[place.source].samples, index_in_epoch(place.source, place.index)};
}

std::int64_t SampleStream::counted_targets(std::int64_t i) {
  const Found found = find(i);
  return found.samples.targets_of(found.index);
}

std::int64_t SampleStream::size_of(std::int64_t i) {
  const Found found = find(i);
  return found.samples.tokens_of(found.index);
}

Sample SampleStream::sample(std::int64_t i) {
  const Found found = find(i);
  return found.samples.sample(found.index);
}

std::vector<std::int64_t> SampleStream::samples_of_sources() const {
  std::vector<std::int64_t> samples;
  for (const Source& source : sources_) samples.push_back(source.samples.size());
  return samples;
}

std::int64_t SampleStream::samples_per_epoch() const {
  const std::vector<std::int64_t> samples = samples_of_sources();
  return std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
}

LeftOut SampleStream::left_out() const {
  LeftOut all;
  for (const Source& source : sources_) {
    const LeftOut& one = source.samples.left_out();
    all.documents += one.documents;
    all.tokens += one.tokens;
    all.stub += one.stub;
  }
  return all;
}

}  // namespace longstride
