#include "data/sample_stream.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace longstride {
namespace {

// Keeps the permutations apart from other uses of the same seed.
constexpr std::uint64_t kShuffleStream = std::uint64_t{0x64617461} << 32;

}  // namespace

std::int64_t Sample::counted_targets() const {
  return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
}

std::vector<std::int64_t> Sample::document_lengths() const {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < document_starts.size(); ++i) {
    const std::int64_t end = i + 1 < document_starts.size() ? document_starts[i + 1] : size();
    lengths.push_back(end - document_starts[i]);
  }
  return lengths;
}

SampleStream::SampleStream(const Corpus& corpus, const SampleOptions& options)
    : corpus_(corpus), options_(options) {
  if (options.context < 2)
    throw Error(fmt::format("a context of {} tokens has nothing to learn from", options.context),
                "set training.context to 2 or more");
  LS_CHECK(options.vocabulary > 0, "vocabulary {}", options.vocabulary);
  corpus.check_vocabulary(options.vocabulary);
  const std::int64_t total = corpus.tokens();
  std::int64_t begin = 0;
  while (begin < total) {
    const std::int64_t end = end_of(begin);
    if (has_target(begin, end)) begins_.push_back(begin);
    begin = end;
  }
  if (begins_.empty())
    throw Error(fmt::format("{} tokens of data hold nothing to learn: no token follows another in "
                            "its document and is left by the loss mask",
                            total),
                "check the data, its document boundaries and its loss mask");
}

std::int64_t SampleStream::end_of(std::int64_t begin) const {
  const std::int64_t end = begin + std::min(options_.context, corpus_.tokens() - begin);
  return options_.pack ? end : corpus_.document_end(begin, end);
}

bool SampleStream::has_target(std::int64_t begin, std::int64_t end) const {
  // A target of this sample is token `at` in (begin, end], if the document of the token before it
  // goes on there.
  const std::int64_t last = std::min(end, corpus_.tokens() - 1);
  std::array<std::uint8_t, 4096> mask{};
  for (std::int64_t block = begin + 1; block <= last;
       block += static_cast<std::int64_t>(mask.size())) {
    const std::int64_t n = std::min(last + 1 - block, static_cast<std::int64_t>(mask.size()));
    corpus_.read_mask(block, std::span(mask).first(static_cast<std::size_t>(n)));
    for (std::int64_t at = block; at < block + n; ++at)
      if (mask[static_cast<std::size_t>(at - block)] != 0 &&
          corpus_.document_end(at - 1, at + 1) > at)
        return true;
  }
  return false;
}

std::int64_t SampleStream::index_in_epoch(std::int64_t i) {
  const std::int64_t n = samples_per_epoch();
  const std::int64_t epoch = i / n;
  if (!options_.shuffle) return i % n;
  if (epoch != epoch_) {
    order_.resize(begins_.size());
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    Random random(options_.seed, kShuffleStream + static_cast<std::uint64_t>(epoch));
    for (std::size_t k = order_.size(); k > 1; --k)
      std::swap(order_[k - 1], order_[random.below(k)]);
    epoch_ = epoch;
  }
  return order_[static_cast<std::size_t>(i % n)];
}

void SampleStream::check_tokens(std::int64_t begin, const std::vector<std::int32_t>& tokens) const {
  for (std::size_t k = 0; k < tokens.size(); ++k)
    if (tokens[k] >= options_.vocabulary)
      throw Error(fmt::format("{} has the value {}, but the model's vocabulary is {} (0 to {})",
                              corpus_.locate(begin + static_cast<std::int64_t>(k)), tokens[k],
                              options_.vocabulary, options_.vocabulary - 1),
                  "make the tokens with this model's tokenizer, and check data.format");
}

Sample SampleStream::sample(std::int64_t i) {
  LS_CHECK(i >= 0, "sample {}", i);
  const std::int64_t begin = begins_[static_cast<std::size_t>(index_in_epoch(i))];
  const std::int64_t end = end_of(begin);
  const std::int64_t known = std::min(end + 1, corpus_.tokens());  // one more token may be a target

  Sample s;
  s.tokens.resize(static_cast<std::size_t>(known - begin));
  corpus_.read(begin, s.tokens);
  check_tokens(begin, s.tokens);
  std::vector<std::uint8_t> mask(s.tokens.size());
  corpus_.read_mask(begin, mask);

  s.targets.assign(static_cast<std::size_t>(end - begin), kNoTarget);
  for (std::int64_t start = begin; start < end;) {
    s.document_starts.push_back(start - begin);
    const std::int64_t stop = corpus_.document_end(start, known);
    for (auto next = static_cast<std::size_t>(start - begin) + 1;
         next < static_cast<std::size_t>(stop - begin); ++next)
      if (mask[next] != 0) s.targets[next - 1] = s.tokens[next];
    start = stop;
  }
  s.tokens.resize(s.targets.size());
  return s;
}

}  // namespace longstride
