#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/error.h"
#include "data/foreign_format.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

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
    : file_(path), width_(options.width) {
  const std::int64_t width = static_cast<std::int64_t>(width_);
  check_not_foreign(file_, "tokens", width == 2 ? "<u2" : "<u4");
  tokens_ = elements(file_, width, "tokens");
  if (options.document_token.has_value()) {
    const std::int64_t largest = width_ == TokenWidth::kU16
                                     ? std::numeric_limits<std::uint16_t>::max()
                                     : std::numeric_limits<std::int32_t>::max();
    if (*options.document_token < 0 || *options.document_token > largest)
      throw Error(
          fmt::format("document_token {} cannot occur in {}: tokens of {} bytes lie in 0 to {}",
                      *options.document_token, path.string(), width, largest),
          "give the id of the token that ends a document");
    document_token_ = static_cast<std::uint32_t>(*options.document_token);
  }
  if (!options.document_index.empty()) {
    if (document_token_)
      throw Error(
          fmt::format("{}: both a document token and a document index are given", path.string()),
          "leave one of them out");
    load_index(options.document_index);
  }
  if (!options.loss_mask.empty()) {
    mask_ = DataFile(options.loss_mask);
    check_not_foreign(mask_, "a loss mask", "u1");
    if (mask_.size() != tokens_)
      throw Error(fmt::format("{}: the loss mask has {} bytes, but {} has {} tokens",
                              mask_.path().string(), mask_.size(), path.string(), tokens_),
                  "the mask needs one byte per token: 0 where the token is not a target");
  }
}

void TokenFile::load_index(const fs::path& path) {
  const DataFile file(path);
  check_not_foreign(file, "a document index", "<u8");
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
  if (width_ == TokenWidth::kU32) return file_.read(begin * 4, std::as_writable_bytes(out));
  std::array<std::uint16_t, kBlockTokens> block;
  for (std::int64_t done = 0; done < n; done += kBlockTokens) {
    const auto narrow = std::span(block).first(std::min<std::size_t>(kBlockTokens, n - done));
    file_.read((begin + done) * 2, std::as_writable_bytes(narrow));
    std::uint32_t* wide = out.data() + done;
#pragma omp simd
    for (std::size_t i = 0; i < narrow.size(); ++i) wide[i] = block[i];
  }
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
  mask_.read(begin, std::as_writable_bytes(out));
  std::uint8_t* mask = out.data();
#pragma omp simd
  for (std::size_t i = 0; i < out.size(); ++i) mask[i] = static_cast<std::uint8_t>(mask[i] != 0);
}

std::vector<TokenRange> TokenFile::token_files() const {
  return {{0, tokens_, static_cast<int>(width_), file_.path()}};
}

void TokenFile::check_vocabulary(std::int64_t vocabulary) const {
  if (document_token_ && *document_token_ >= vocabulary)
    throw Error(fmt::format("document_token {} is not in the model's vocabulary of {} tokens",
                            *document_token_, vocabulary),
                "give the id of the token that ends a document in this model's tokenizer");
}

std::string TokenFile::locate(std::int64_t token) const {
  return fmt::format("{}: token {}", file_.path().string(), token);
}

}  // namespace longstride
