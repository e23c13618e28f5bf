#include "data/token_file.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/foreign_format.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Tokens read at a time when a whole range is needed once.
constexpr std::int64_t kBlockTokens = std::int64_t{16} << 10;

// The first i >= begin with values[i] == value, or the size. Whole blocks are tested first, which
// the compiler vectorises.
std::size_t find(std::span<const std::uint32_t> values, std::size_t begin, std::uint32_t value) {
  constexpr std::size_t kBlock = 256;
  for (; begin + kBlock <= values.size(); begin += kBlock) {
    const std::uint32_t* block = values.data() + begin;
    std::uint32_t any = 0;
    for (std::size_t i = 0; i < kBlock; ++i) any |= static_cast<std::uint32_t>(block[i] == value);
    if (any != 0) break;
  }
  while (begin < values.size() && values[begin] != value) ++begin;
  return begin;
}

std::int64_t elements(const DataFile& file, std::int64_t width, const char* what) {
  if (file.size() == 0)
    throw Error(fmt::format("{}: the file is empty", file.path().string()),
                fmt::format("write {} into it, or name another file", what));
  if (file.size() % width != 0)
    throw Error(
        fmt::format("{}: {} bytes are not a whole number of {}-byte {}", file.path().string(),
                    file.size(), width, what),
        width == 4 && file.size() % 2 == 0
            ? "the file is cut short, or holds tokens of 16 bits: set data.format to \"u16\""
            : "the file is cut short or has another format");
  return file.size() / width;
}

}  // namespace

TokenFile::TokenFile(const fs::path& path, const TokenFileOptions& options)
    : file_(path), type_(options.type), described_(options.described) {
  const std::int64_t width = bytes_of(type_);
  if (!described_) check_not_foreign(file_, "tokens", width == 2 ? "<u2" : "<u4");
  tokens_ = elements(file_, width, "tokens");
  if (options.document_token.has_value()) set_document_token(*options.document_token);
  if (!options.document_index.empty()) {
    if (document_token_)
      throw Error(
          fmt::format("{}: both a document token and a document index are given", path.string()),
          "leave one of them out");
    load_index(options.document_index);
  }
  if (described_ && !described_->starts.empty()) index_.swap(described_->starts);
  open_targets(options);
}

void TokenFile::set_document_token(std::int64_t token) {
  const std::int64_t largest = largest_of(type_);
  if (token < 0 || token > largest)
    throw Error(
        fmt::format("document_token {} cannot occur in {}: tokens of {} bytes lie in 0 to {}",
                    token, file_.path().string(), bytes_of(type_), largest),
        "give the id of the token that ends a document");
  document_token_ = static_cast<std::uint32_t>(token);
}

void TokenFile::open_targets(const TokenFileOptions& options) {
  const std::string name = file_.path().string();
  if (!options.loss_mask.empty()) {
    mask_ = DataFile(options.loss_mask);
    if (!described_) check_not_foreign(mask_, "a loss mask", "u1");
    if (mask_.size() != tokens_)
      throw Error(fmt::format("{}: the loss mask has {} bytes, but {} has {} tokens",
                              mask_.path().string(), mask_.size(), name, tokens_),
                  "the mask needs one byte per token: 0 where the token is not a target");
  }
  if (!options.weights.empty()) {
    LS_CHECK(!mask_.is_open(), "a mask beside weights");
    weights_ = DataFile(options.weights);
    if (weights_.size() != tokens_ * static_cast<std::int64_t>(sizeof(float)))
      throw Error(fmt::format("{}: the weights have {} bytes, but {} has {} tokens",
                              weights_.path().string(), weights_.size(), name, tokens_),
                  "there is one float32 per token");
  }
}

void TokenFile::load_index(const fs::path& path) {
  const DataFile file(path);
  if (!described_) check_not_foreign(file, "a document index", "<u8");
  const std::string name = path.string();
  const std::int64_t n = elements(file, 8, "offsets");
  index_.resize(static_cast<std::size_t>(n));
  file.read(0, std::as_writable_bytes(std::span(index_)));
  const auto offset = [&](std::int64_t i) {
    return static_cast<std::uint64_t>(index_[static_cast<std::size_t>(i)]);
  };
  if (offset(0) != 0)
    throw Error(fmt::format("{}: the first document starts at {}, not at 0", name, offset(0)),
                "the index holds the start of every document, in tokens, as raw little-endian u64");
  for (std::int64_t i = 1; i < n; ++i)
    if (offset(i) <= offset(i - 1))
      throw Error(fmt::format("{}: document {} starts at {}, not after document {} at {}", name, i,
                              offset(i), i - 1, offset(i - 1)),
                  "offsets must ascend");
  if (offset(n - 1) > static_cast<std::uint64_t>(tokens_))
    throw Error(fmt::format("{}: the last offset is {}, but {} has only {} tokens", name,
                            offset(n - 1), file_.path().string(), tokens_),
                "offsets count tokens, not bytes; check that both files belong together");
}

void TokenFile::read_values(std::int64_t begin, std::span<std::uint32_t> out) const {
  const auto n = static_cast<std::int64_t>(out.size());
  LS_CHECK(begin >= 0 && begin + n <= tokens_, "tokens {}+{} of {}", begin, n, tokens_);
  read_tokens(file_, type_, begin, out);
}

std::int64_t TokenFile::document_end(std::int64_t token, std::int64_t limit) const {
  LS_CHECK(token >= 0 && token < limit && limit <= tokens_, "token {}, limit {} of {}", token,
           limit, tokens_);
  if (!document_token_) {
    const auto next = std::upper_bound(index_.begin(), index_.end(), token);
    return next == index_.end() ? limit : std::min(limit, *next);
  }
  // Most documents end soon; after that, larger reads are cheaper.
  std::vector<std::uint32_t> values;
  for (std::int64_t size = 512; token < limit; size = std::min(4 * size, kBlockTokens)) {
    values.resize(static_cast<std::size_t>(std::min(size, limit - token)));
    read_values(token, values);
    const std::size_t at = find(values, 0, *document_token_);
    if (at < values.size()) return token + static_cast<std::int64_t>(at) + 1;
    token += static_cast<std::int64_t>(values.size());
  }
  return limit;
}

void TokenFile::document_ends(std::int64_t begin, std::int64_t end,
                              std::span<const std::uint32_t> values,
                              std::vector<std::int64_t>& ends) const {
  LS_CHECK(begin >= 0 && begin <= end && end <= tokens_, "tokens {} to {} of {}", begin, end,
           tokens_);
  if (begin == end) return;
  const std::size_t before = ends.size();
  if (document_token_) {
    std::vector<std::uint32_t> block;
    for (std::int64_t at = begin; at < end;) {
      std::span<const std::uint32_t> here = values;
      if (values.empty()) {
        block.resize(static_cast<std::size_t>(std::min(kBlockTokens, end - at)));
        read_values(at, block);
        here = block;
      }
      for (std::size_t i = 0; (i = find(here, i, *document_token_)) < here.size();)
        ends.push_back(at + static_cast<std::int64_t>(++i));
      at += std::ssize(here);
    }
  } else {
    const auto from = std::upper_bound(index_.begin(), index_.end(), begin);
    ends.insert(ends.end(), from, std::upper_bound(from, index_.end(), end));
  }
  if (end == tokens_ && (ends.size() == before || ends.back() != end)) ends.push_back(end);
}

void TokenFile::read_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  LS_CHECK(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= tokens_,
           "mask {}+{} of {}", begin, out.size(), tokens_);
  if (!has_mask()) return std::fill(out.begin(), out.end(), std::uint8_t{1});
  std::uint8_t* mask = out.data();
  if (has_weights()) {
    std::vector<float> weights(std::min<std::size_t>(out.size(), kBlockTokens));
    for (std::size_t done = 0; done < out.size(); done += weights.size()) {
      const auto here = std::span(weights).first(std::min(weights.size(), out.size() - done));
      read_weights(begin + static_cast<std::int64_t>(done), here);
      for (std::size_t i = 0; i < here.size(); ++i)
        mask[done + i] = static_cast<std::uint8_t>(here[i] != 0);
    }
    return;
  }
  mask_.read(begin, std::as_writable_bytes(out));
#pragma omp simd
  for (std::size_t i = 0; i < out.size(); ++i) mask[i] = static_cast<std::uint8_t>(mask[i] != 0);
}

void TokenFile::read_weights(std::int64_t begin, std::span<float> out) const {
  if (!has_weights()) return Corpus::read_weights(begin, out);
  LS_CHECK(begin >= 0 && begin + std::ssize(out) <= tokens_, "weights {}+{} of {}", begin,
           out.size(), tokens_);
  weights_.read(begin * static_cast<std::int64_t>(sizeof(float)), std::as_writable_bytes(out));
  const auto bad = std::find_if(out.begin(), out.end(), [](float w) { return !std::isfinite(w); });
  if (bad != out.end())
    throw Error(fmt::format("{}: the weight of token {} is {}", weights_.path().string(),
                            begin + (bad - out.begin()), *bad),
                "weights are finite numbers; 0 where the token is not a target");
}

std::vector<TokenRange> TokenFile::token_files() const {
  return {{0, tokens_, described_ ? 0 : static_cast<int>(bytes_of(type_)), file_.path()}};
}

std::vector<CheckedFile> TokenFile::checked_files() const {
  return described_ ? described_->files : std::vector<CheckedFile>();
}

void TokenFile::check_vocabulary(std::int64_t vocabulary) const {
  if (document_token_ && *document_token_ >= vocabulary)
    throw Error(fmt::format("document_token {} is not in the model's vocabulary of {} tokens",
                            *document_token_, vocabulary),
                "give the id of the token that ends a document in this model's tokenizer");
  if (described_ && described_->vocabulary > vocabulary)
    throw Error(fmt::format("the tokens of {} are from a vocabulary of {}, and the model has {}",
                            described_->source, described_->vocabulary, vocabulary),
                "prepare the data with this model's tokenizer, or choose the model they are for");
}

std::string TokenFile::locate(std::int64_t token) const {
  return fmt::format("{}: token {}", file_.path().string(), token);
}

}  // namespace longstride
