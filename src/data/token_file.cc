#include "data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

template <class T>
T load(const MappedFile& file, std::int64_t i) {
  T x;
  std::memcpy(&x, file.bytes().data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return x;
}

// The first i in [begin, end) with the value, or end. Whole blocks are tested first, which the
// compiler vectorises.
template <class T>
std::int64_t find(const MappedFile& file, std::int64_t begin, std::int64_t end,
                  std::uint32_t value) {
  constexpr std::int64_t kBlock = 256;
  for (; begin + kBlock <= end; begin += kBlock) {
    T block[kBlock];
    std::memcpy(block, file.bytes().data() + begin * static_cast<std::int64_t>(sizeof(T)),
                sizeof(block));
    bool any = false;
    for (T x : block) any |= x == value;
    if (any) break;
  }
  while (begin < end && load<T>(file, begin) != value) ++begin;
  return begin;
}

std::int64_t elements(const MappedFile& file, std::int64_t width, const char* what) {
  const auto bytes = static_cast<std::int64_t>(file.bytes().size());
  if (bytes == 0)
    throw Error(fmt::format("{}: the file is empty", file.path().string()),
                fmt::format("write {} into it, or name another file", what));
  if (bytes % width != 0)
    throw Error(fmt::format("{}: {} bytes are not a whole number of {}-byte {}",
                            file.path().string(), bytes, width, what),
                "the file is cut short or has another format");
  return bytes / width;
}

}  // namespace

TokenFile::TokenFile(const fs::path& path, const TokenFileOptions& options)
    : file_(path), width_(options.width) {
  const std::int64_t width = static_cast<std::int64_t>(width_);
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
    index_ = MappedFile(options.document_index);
    check_index();
  }
  if (!options.loss_mask.empty()) {
    mask_ = MappedFile(options.loss_mask);
    const auto length = static_cast<std::int64_t>(mask_.bytes().size());
    if (length != tokens_)
      throw Error(fmt::format("{}: the loss mask has {} bytes, but {} has {} tokens",
                              mask_.path().string(), length, path.string(), tokens_),
                  "the mask needs one byte per token: 0 where the token is not a target");
  }
}

std::int64_t TokenFile::index_size() const {
  return static_cast<std::int64_t>(index_.bytes().size() / 8);
}

std::int64_t TokenFile::index_entry(std::int64_t i) const {
  return static_cast<std::int64_t>(load<std::uint64_t>(index_, i));
}

void TokenFile::check_index() const {
  const std::string name = index_.path().string();
  const std::int64_t n = elements(index_, 8, "offsets");
  if (load<std::uint64_t>(index_, 0) != 0)
    throw Error(fmt::format("{}: the first document starts at {}, not at 0", name,
                            load<std::uint64_t>(index_, 0)),
                "the index holds the start of every document, in tokens, as raw little-endian u64");
  std::uint64_t before = 0;
  for (std::int64_t i = 1; i < n; ++i) {
    const auto at = load<std::uint64_t>(index_, i);
    if (at <= before)
      throw Error(fmt::format("{}: document {} starts at {}, not after document {} at {}", name, i,
                              at, i - 1, before),
                  "offsets must ascend");
    before = at;
  }
  if (before > static_cast<std::uint64_t>(tokens_))
    throw Error(fmt::format("{}: the last offset is {}, but {} has only {} tokens", name, before,
                            file_.path().string(), tokens_),
                "offsets count tokens, not bytes; check that both files belong together");
}

std::uint32_t TokenFile::value(std::int64_t token) const {
  return width_ == TokenWidth::kU16 ? load<std::uint16_t>(file_, token)
                                    : load<std::uint32_t>(file_, token);
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto n = static_cast<std::int64_t>(out.size());
  LS_CHECK(begin >= 0 && begin + n <= tokens_, "tokens {}+{} of {}", begin, n, tokens_);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t x = value(begin + i);
    if (x > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) [[unlikely]]
      throw Error(
          fmt::format("{} has the value {}, which no vocabulary holds", locate(begin + i), x),
          "check data.format: the file may hold 16-bit tokens, or none at all");
    out[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(x);
  }
}

std::int64_t TokenFile::document_end(std::int64_t token, std::int64_t limit) const {
  LS_CHECK(token >= 0 && token < limit && limit <= tokens_, "token {}, limit {} of {}", token,
           limit, tokens_);
  if (document_token_) {
    const std::int64_t at = width_ == TokenWidth::kU16
                                ? find<std::uint16_t>(file_, token, limit, *document_token_)
                                : find<std::uint32_t>(file_, token, limit, *document_token_);
    return std::min(at + 1, limit);
  }
  return index_.bytes().empty() ? limit : index_end(token, limit);
}

std::int64_t TokenFile::index_end(std::int64_t token, std::int64_t limit) const {
  std::int64_t low = 0, high = index_size();  // the first entry over `token` lies in [low, high]
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (index_entry(middle) > token)
      high = middle;
    else
      low = middle + 1;
  }
  return low == index_size() ? limit : std::min(limit, index_entry(low));
}

void TokenFile::read_mask(std::int64_t begin, std::span<std::uint8_t> out) const {
  LS_CHECK(begin >= 0 && begin + static_cast<std::int64_t>(out.size()) <= tokens_,
           "mask {}+{} of {}", begin, out.size(), tokens_);
  if (!has_mask()) return std::fill(out.begin(), out.end(), std::uint8_t{1});
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = mask_.bytes()[static_cast<std::size_t>(begin) + i] != std::byte{0} ? 1 : 0;
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
