#include "data/sample_set.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "data/best_fit.h"
#include "data/token_values.h"

namespace longstride {
namespace {

// Tokens read at a time when samples are only counted.
constexpr std::int64_t kBlockTokens = std::int64_t{256} << 10;

}  // namespace

SampleSet::SampleSet(const Corpus& corpus, const SampleOptions& options)
    : corpus_(corpus), options_(options), files_(corpus.token_files()) {
  LS_CHECK(options.context >= 2, "context {}", options.context);
  LS_CHECK(options.vocabulary > 0, "vocabulary {}", options.vocabulary);
  corpus.check_vocabulary(options.vocabulary);
  if (options.pack == Packing::kStretches)
    cut_stretches();
  else if (options.pack == Packing::kDocuments)
    cut_documents(nullptr);
  else
    pack_whole();
}

std::int64_t SampleSet::size() const {
  return options_.pack == Packing::kWhole ? std::ssize(starts_) - 1 : std::ssize(begins_);
}

std::span<const std::int64_t> SampleSet::pieces_of(std::int64_t k) const {
  LS_CHECK(k >= 0 && k < size(), "sample {} of {}", k, size());
  const auto i = static_cast<std::size_t>(k);
  if (options_.pack != Packing::kWhole) return std::span(begins_).subspan(i, 1);
  return std::span(begins_).subspan(static_cast<std::size_t>(starts_[i]),
                                    static_cast<std::size_t>(starts_[i + 1] - starts_[i]));
}

std::int64_t SampleSet::end_of(std::int64_t begin) const {
  const std::int64_t end = begin + std::min(options_.context, corpus_.tokens() - begin);
  return options_.pack == Packing::kStretches ? end : corpus_.document_end(begin, end);
}

bool SampleSet::is_stub(std::int64_t begin) const {
  constexpr std::int64_t kShare = 16;
  const std::int64_t size = end_of(begin) - begin;
  return begin > 0 && (size <= 2 || size < options_.context / kShare);
}

void SampleSet::cut_stretches() {
  const std::int64_t total = corpus_.tokens();
  for (std::int64_t begin = 0; begin < total; begin = end_of(begin)) {
    if (options_.drop_stub && !begins_.empty() && is_stub(begin)) {
      // A single token has no target of its own: nothing is lost.
      left_out_.stub = total - begin > 1 ? total - begin : 0;
      break;
    }
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

void SampleSet::cut_documents(std::vector<std::int64_t>* lengths) {
  const std::int64_t total = corpus_.tokens();
  std::vector<std::int64_t> ends;
  std::int64_t begin = 0;
  for (std::int64_t block = 0; block < total; block += kBlockTokens) {
    ends.clear();
    corpus_.document_ends(block, std::min(block + kBlockTokens, total), {}, ends);
    for (const std::int64_t document_end : ends) {
      const std::int64_t length = document_end - begin;
      // How many of the document's tokens are used.
      std::int64_t used = length;
      if (length > options_.context && options_.long_documents != LongDocuments::kSplit) {
        used = options_.long_documents == LongDocuments::kCut ? options_.context : 0;
        ++left_out_.documents;
        left_out_.tokens += length - used;
      }
      for (std::int64_t at = begin; at < begin + used;) {
        const std::int64_t end = at + std::min(options_.context, document_end - at);
        // The last token's target is the token after the cut; at the document's end there is none.
        if (any_unmasked(at + 1, end < document_end ? end + 1 : end)) {
          begins_.push_back(at);
          if (lengths != nullptr) lengths->push_back(end - at);
        }
        at = end;
      }
      begin = document_end;
    }
  }
}

void SampleSet::pack_whole() {
  std::vector<std::int64_t> lengths;
  cut_documents(&lengths);
  Bins bins = best_fit(lengths, options_.context);
  for (std::int64_t& item : bins.items) item = begins_[static_cast<std::size_t>(item)];
  begins_ = std::move(bins.items);
  starts_ = std::move(bins.starts);
}

std::int64_t SampleSet::last_target(std::int64_t end) const {
  return std::min(end, corpus_.tokens() - 1);
}

bool SampleSet::any_unmasked(std::int64_t begin, std::int64_t end) const {
  if (!corpus_.has_mask()) return begin < end;
  constexpr std::int64_t kStep = 4096;
  for (; begin < end; begin += kStep)
    if (unmasked(begin, std::min(begin + kStep, end)) > 0) return true;
  return false;
}

std::int64_t SampleSet::unmasked(std::int64_t begin, std::int64_t end) const {
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

std::int64_t SampleSet::targets_in(std::int64_t begin, std::int64_t end) const {
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

std::int64_t SampleSet::targets_of(std::int64_t k) const {
  std::int64_t count = 0;
  for (const std::int64_t begin : pieces_of(k))
    count += targets_in(begin, last_target(end_of(begin)));
  return count;
}

std::int64_t SampleSet::tokens_of(std::int64_t k) const {
  std::int64_t count = 0;
  for (const std::int64_t begin : pieces_of(k)) count += end_of(begin) - begin;
  return count;
}

void SampleSet::check_tokens(std::int64_t begin, std::span<const std::uint32_t> values) const {
  if (files_.empty()) return;  // bytes: check_vocabulary has checked that they fit
  auto file = std::upper_bound(files_.begin(), files_.end(), begin,
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

void SampleSet::append(std::int64_t begin, Sample& s) const {
  const std::int64_t end = end_of(begin);
  const std::int64_t known = std::min(end + 1, corpus_.tokens());  // one more token may be a target
  const std::size_t before = s.tokens.size(), count = static_cast<std::size_t>(known - begin);
  s.tokens.resize(before + count);
  const std::span values(reinterpret_cast<std::uint32_t*>(s.tokens.data() + before), count);
  corpus_.read_values(begin, values);
  check_tokens(begin, values);
  std::vector<std::uint8_t> mask;
  std::vector<float> weights;
  if (corpus_.has_weights()) {
    weights.resize(count);
    corpus_.read_weights(begin, weights);
  } else {
    mask.resize(count);
    corpus_.read_mask(begin, mask);
  }
  std::vector<std::int64_t> stops;
  corpus_.document_ends(begin, known, values, stops);
  stops.push_back(known);  // if a document continues

  s.targets.resize(before + static_cast<std::size_t>(end - begin), kNoTarget);
  if (!weights.empty()) s.weights.resize(s.targets.size(), 0);
  std::int64_t start = begin;
  for (const std::int64_t stop : stops) {
    if (start >= end) break;
    s.document_starts.push_back(static_cast<std::int64_t>(before) + start - begin);
    for (auto next = static_cast<std::size_t>(start - begin) + 1;
         next < static_cast<std::size_t>(stop - begin); ++next) {
      if (weights.empty() ? mask[next] == 0 : weights[next] == 0) continue;
      s.targets[before + next - 1] = s.tokens[before + next];
      if (!weights.empty()) s.weights[before + next - 1] = weights[next];
    }
    start = stop;
  }
  s.tokens.resize(s.targets.size());
}

Sample SampleSet::sample(std::int64_t k) const {
  Sample s;
  for (const std::int64_t begin : pieces_of(k)) append(begin, s);
  return s;
}

}  // namespace longstride
