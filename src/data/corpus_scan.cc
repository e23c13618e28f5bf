#include "data/corpus_scan.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "data/document_lengths.h"
#include "data/file_checksums.h"

namespace longstride {
namespace {

constexpr std::int64_t kPieceTokens = 4 << 20;   // a thread's unit of work
constexpr std::int64_t kBlockTokens = 64 << 10;  // of one read: it stays in the cache

// A range of one file. Documents that cross its ends are joined afterwards. Or, without tokens, a
// file whose checksum is computed.
struct Piece {
  std::int64_t begin = 0, end = 0;
  std::size_t file = 0;
  const CheckedFile* checked = nullptr;
  std::int64_t first_end = -1, last_end = -1;  // of documents in (begin, end]; -1: none
};

// A shard's checksums come before its tokens, which are then in the page cache.
std::vector<Piece> cut(std::int64_t tokens, const std::vector<TokenRange>& files,
                       const std::vector<CheckedFile>& checked) {
  std::vector<TokenRange> ranges = files;
  if (ranges.empty()) ranges.push_back({.begin = 0, .end = tokens});
  std::vector<Piece> pieces;
  std::size_t next = 0;
  for (std::size_t file = 0; file < ranges.size(); ++file) {
    for (; next < checked.size() && checked[next].begin < ranges[file].end; ++next)
      pieces.push_back({.begin = checked[next].begin,
                        .end = checked[next].begin,
                        .file = file,
                        .checked = &checked[next]});
    for (std::int64_t begin = ranges[file].begin; begin < ranges[file].end; begin += kPieceTokens)
      pieces.push_back(
          {.begin = begin, .end = std::min(begin + kPieceTokens, ranges[file].end), .file = file});
  }
  return pieces;
}

// The counts of one thread.
class Scanner {
 public:
  Scanner(const Corpus& corpus, const ScanOptions& options, const std::vector<TokenRange>& files)
      : corpus_(corpus), options_(options), files_(files), values_(files.size()) {}

  void scan(Piece& piece) {
    if (piece.checked != nullptr) return check_file(*piece.checked, options_.stop);
    for (std::int64_t at = piece.begin; at < piece.end; at += kBlockTokens) {
      if (options_.stop != nullptr && *options_.stop) return;
      const std::int64_t end = std::min(at + kBlockTokens, piece.end);
      scan_block(piece, at, end);
      if (options_.done != nullptr) *options_.done += end - at;
    }
  }

  void add_to(CorpusFacts& facts, DocumentLengths& lengths) const {
    for (std::size_t i = 0; i < values_.size(); ++i) facts.files[i].values.merge(values_[i]);
    facts.targets += unmasked_;
    facts.document_tokens += document_tokens_;
    lengths.merge(lengths_);
  }

 private:
  void scan_block(Piece& piece, std::int64_t begin, std::int64_t end) {
    block_.clear();
    if (!files_.empty()) {
      const TokenRange& file = files_[piece.file];
      block_.resize(static_cast<std::size_t>(end - begin));
      corpus_.read_values(begin, block_);
      values_[piece.file].add(begin - file.begin, block_, file.width, options_.vocabulary);
    }
    ends_.clear();
    corpus_.document_ends(begin, end, block_, ends_);
    for (const std::int64_t document_end : ends_) {
      if (piece.first_end < 0)
        piece.first_end = document_end;
      else
        lengths_.add(document_end - piece.last_end);
      piece.last_end = document_end;
      if (options_.document_token && !block_.empty() &&
          block_[static_cast<std::size_t>(document_end - begin - 1)] == *options_.document_token)
        ++document_tokens_;
    }
    count_targets(begin, end);
  }

  // Counts targets in (begin, end]; the first token of a document is none.
  void count_targets(std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end, corpus_.tokens() - 1);
    const auto starts = std::ranges::upper_bound(ends_, last) - ends_.begin();
    if (!corpus_.has_mask()) {
      unmasked_ += last - begin - starts;
      return;
    }
    mask_.resize(static_cast<std::size_t>(last - begin));
    corpus_.read_mask(begin + 1, mask_);
    std::uint32_t count = 0;
    const std::uint8_t* mask = mask_.data();
#pragma omp simd reduction(+ : count)
    for (std::size_t i = 0; i < mask_.size(); ++i) count += mask[i];
    for (std::ptrdiff_t i = 0; i < starts; ++i)
      count -= mask_[static_cast<std::size_t>(ends_[static_cast<std::size_t>(i)] - begin - 1)];
    unmasked_ += count;
  }

  const Corpus& corpus_;
  const ScanOptions& options_;
  const std::vector<TokenRange>& files_;
  std::vector<TokenValues> values_;  // of each file
  DocumentLengths lengths_;          // of documents between two ends in one piece
  std::int64_t unmasked_ = 0, document_tokens_ = 0;
  std::vector<std::uint32_t> block_;
  std::vector<std::int64_t> ends_;
  std::vector<std::uint8_t> mask_;
};

// Runs each scanner on its own thread, the last one on this thread; rethrows the first error.
void scan_all(std::vector<Scanner>& scanners, std::vector<Piece>& pieces) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex error_lock;
  const auto work = [&](Scanner& scanner) {
    try {
      for (std::size_t i = next++; i < pieces.size(); i = next++) scanner.scan(pieces[i]);
    } catch (...) {
      next = pieces.size();
      const std::scoped_lock hold(error_lock);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i + 1 < scanners.size(); ++i)
    threads.emplace_back([&, i] { work(scanners[i]); });
  work(scanners.back());
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

std::uint32_t value_at(const Corpus& corpus, std::int64_t token) {
  std::uint32_t value = 0;
  corpus.read_values(token, {&value, 1});
  return value;
}

}  // namespace

CorpusFacts scan_corpus(const Corpus& corpus, const ScanOptions& options) {
  CorpusFacts facts;
  facts.tokens = corpus.tokens();
  const std::vector<TokenRange> files = corpus.token_files();
  for (const TokenRange& file : files)
    facts.files.push_back({file, {}, value_at(corpus, file.begin), value_at(corpus, file.end - 1)});
  if (corpus.has_weights()) {  // the others are read as a mask
    float first = 0;
    corpus.read_weights(0, {&first, 1});
  }
  const std::vector<CheckedFile> checked = corpus.checked_files();
  std::vector<Piece> pieces = cut(facts.tokens, files, checked);
  const std::size_t threads = std::clamp<std::size_t>(static_cast<std::size_t>(options.threads), 1,
                                                      std::max<std::size_t>(1, pieces.size()));
  std::vector<Scanner> scanners(threads, Scanner(corpus, options, files));
  scan_all(scanners, pieces);

  DocumentLengths lengths;
  for (const Scanner& scanner : scanners) scanner.add_to(facts, lengths);
  std::int64_t begin = 0;
  for (const Piece& piece : pieces) {
    if (piece.first_end < 0) continue;
    lengths.add(piece.first_end - begin);
    begin = piece.last_end;
  }
  facts.documents = lengths.documents();
  facts.median_document = lengths.median();
  facts.longest_document = lengths.longest();
  facts.masked = facts.tokens - facts.documents - facts.targets;
  return facts;
}

void check_facts(const CorpusFacts& facts, const Corpus& corpus, const ScanOptions& options) {
  for (const FileFacts& file : facts.files) {
    const auto misread = misread_format(file.values, file.range.width, options.vocabulary);
    if (misread && misread->certain)
      throw Error(fmt::format("{}: {}", file.range.path.string(), misread->reason), misread->hint);
  }
  for (const FileFacts& file : facts.files)
    if (file.values.outside > 0)
      throw outside_error(corpus.locate(file.range.begin + file.values.first_outside), file.values,
                          file.range.width, options.vocabulary);
}

std::vector<std::string> fact_warnings(const CorpusFacts& facts, const Corpus& corpus,
                                       const ScanOptions& options) {
  std::vector<std::string> lines;
  // Where documents end is known of the others.
  const auto takes_token = [](const FileFacts& file) { return file.range.width != 0; };
  if (!options.document_token || std::ranges::none_of(facts.files, takes_token)) return lines;
  const std::int64_t token = *options.document_token;
  if (facts.document_tokens == 0)
    lines.push_back(fmt::format(
        "data.document_token {} does not occur in the data: all of a file is one document", token));
  for (const FileFacts& file : facts.files)
    if (takes_token(file) && file.first == token && file.last != token &&
        file.range.end - file.range.begin > 1) {
      lines.push_back(fmt::format(
          "{} is data.document_token, and the last one is not: where it begins documents "
          "instead of ending them, give their starts by data.document_index",
          corpus.locate(file.range.begin)));
      break;
    }
  return lines;
}

}  // namespace longstride
