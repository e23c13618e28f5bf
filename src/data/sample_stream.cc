#include "data/sample_stream.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "data/token_values.h"

namespace longstride {
namespace {

// Separates the permutations from other uses of the same seed.
constexpr std::uint64_t kShuffleStream = std::uint64_t{0x64617461} << 32;

// Tokens read at a time when samples are only counted.
constexpr std::int64_t kBlockTokens = std::int64_t{256} << 10;

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
  if (options.pack)
    cut_stretches();
  else
    cut_documents();
  if (begins_.empty())
    throw Error(fmt::format("{} tokens of data hold nothing to learn: no token follows another in "
                            "its document and is left by the loss mask",
                            corpus.tokens()),
                "check the data, its document boundaries and its loss mask");
}

std::int64_t SampleStream::end_of(std::int64_t begin) const {
  const std::int64_t end = begin + std::min(options_.context, corpus_.tokens() - begin);
  return options_.pack ? end : corpus_.document_end(begin, end);
}

void SampleStream::cut_stretches() {
  const std::int64_t total = corpus_.tokens();
  for (std::int64_t begin = 0; begin < total; begin = end_of(begin)) {
    const std::int64_t last = last_target(end_of(begin));
    // Most samples have a target at their very beginning.
    std::int64_t size = 64, at = begin, found = 0;
    for (; at < last && found == 0; size = std::min(4 * size, kBlockTokens)) {
      const std::int64_t to = std::min(at + size, last);
      found = targets_in(at, to);
      at = to;
    }
    if (found > 0) begins_.push_back(begin);
  }
}

void SampleStream::cut_documents() {
  const std::int64_t total = corpus_.tokens();
  std::vector<std::int64_t> ends;
  std::int64_t begin = 0;
  for (std::int64_t block = 0; block < total; block += kBlockTokens) {
    ends.clear();
    corpus_.document_ends(block, std::min(block + kBlockTokens, total), {}, ends);
    for (const std::int64_t document_end : ends)
      while (begin < document_end) {
        const std::int64_t end = begin + std::min(options_.context, document_end - begin);
        // The last token's target is the token after the cut; at the document's end there is none.
        if (unmasked(begin + 1, end < document_end ? end + 1 : end) > 0) begins_.push_back(begin);
        begin = end;
      }
  }
}

std::int64_t SampleStream::last_target(std::int64_t end) const {
  return std::min(end, corpus_.tokens() - 1);
}

std::int64_t SampleStream::unmasked(std::int64_t begin, std::int64_t end) const {
  if (!corpus_.has_mask()) return std::max<std::int64_t>(0, end - begin);
  std::array<std::uint8_t, 4096> mask;
  std::int64_t count = 0;
  while (begin < end) {
    const auto here = std::span(mask).first(std::min<std::size_t>(mask.size(), end - begin));
    corpus_.read_mask(begin, here);
    count += std::count(here.begin(), here.end(), 1);
    begin += std::ssize(here);
  }
  return count;
}

std::int64_t SampleStream::targets_in(std::int64_t begin, std::int64_t end) const {
  std::int64_t count = 0;
  std::vector<std::int64_t> ends;
  for (; begin < end; begin += kBlockTokens) {
    const std::int64_t to = std::min(begin + kBlockTokens, end);
    ends.clear();
    corpus_.document_ends(begin, to, {}, ends);
    count += unmasked(begin + 1, to + 1);
    // The first token of a document is not a target.
    for (const std::int64_t first : ends) count -= unmasked(first, first + 1);
  }
  return count;
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

void SampleStream::check_tokens(std::int64_t begin, std::span<const std::uint32_t> values) const {
  const std::vector<TokenRange> files = corpus_.token_files();
  if (files.empty()) return;  // bytes: check_vocabulary has checked that they fit
  auto file = std::upper_bound(files.begin(), files.end(), begin,
                               [](std::int64_t at, const TokenRange& f) { return at < f.end; });
  for (; !values.empty(); ++file) {
    const auto here =
        values.first(std::min(values.size(), static_cast<std::size_t>(file->end - begin)));
    TokenValues seen;
    seen.add(begin - file->begin, here, file->width, options_.vocabulary);
    if (seen.outside > 0)
      throw outside_error(corpus_.locate(file->begin + seen.first_outside), seen, file->width,
                          options_.vocabulary);
    begin += std::ssize(here);
    values = values.subspan(here.size());
  }
}

std::int64_t SampleStream::begin_of(std::int64_t i) {
  LS_CHECK(i >= 0, "sample {}", i);
  return begins_[static_cast<std::size_t>(index_in_epoch(i))];
}

std::int64_t SampleStream::counted_targets(std::int64_t i) {
  const std::int64_t begin = begin_of(i);
  return targets_in(begin, last_target(end_of(begin)));
}

std::int64_t SampleStream::size_of(std::int64_t i) {
  const std::int64_t begin = begin_of(i);
  return end_of(begin) - begin;
}

Sample SampleStream::sample(std::int64_t i) {
  const std::int64_t begin = begin_of(i);
  const std::int64_t end = end_of(begin);
  const std::int64_t known = std::min(end + 1, corpus_.tokens());  // one more token may be a target

  Sample s;
  s.tokens.resize(static_cast<std::size_t>(known - begin));
  const std::span values(reinterpret_cast<std::uint32_t*>(s.tokens.data()), s.tokens.size());
  corpus_.read_values(begin, values);
  check_tokens(begin, values);
  std::vector<std::uint8_t> mask(s.tokens.size());
  corpus_.read_mask(begin, mask);
  std::vector<std::int64_t> stops;
  corpus_.document_ends(begin, known, values, stops);
  stops.push_back(known);  // if a document continues

  s.targets.assign(static_cast<std::size_t>(end - begin), kNoTarget);
  std::int64_t start = begin;
  for (const std::int64_t stop : stops) {
    if (start >= end) break;
    s.document_starts.push_back(start - begin);
    for (auto next = static_cast<std::size_t>(start - begin) + 1;
         next < static_cast<std::size_t>(stop - begin); ++next)
      if (mask[next] != 0) s.targets[next - 1] = s.tokens[next];
    start = stop;
  }
  s.tokens.resize(s.targets.size());
  return s;
}

}  // namespace longstride
