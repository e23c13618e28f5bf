#include "data/megatron.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "data/token_file.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr std::int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 50;
constexpr std::size_t kBlock = 4096;  // numbers read at a time
constexpr const char* kHint =
    "the index is damaged or not Megatron's: make it again, or restore it from a copy";

[[noreturn]] void fail(const DataFile& file, const std::string& what) {
  throw Error(fmt::format("{}: {}", file.path().string(), what), kHint);
}

TokenType type_of_code(const DataFile& file, int code) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 2:
      return TokenType::kI8;
    case 3:
      return TokenType::kI16;
    case 4:
      return TokenType::kU32;  // int32: what is negative is in no vocabulary
    case 5:
      return TokenType::kI64;
    case 6:
    case 7:
      throw Error(fmt::format("{}: it holds floating-point numbers (type {}), not tokens",
                              file.path().string(), code),
                  "name a dataset of token ids");
    case 8:
      return TokenType::kU16;
    default:
      fail(file, fmt::format("its type code is {}, and those of tokens are 1 to 5 and 8", code));
  }
}

// An array within the index, read in order.
template <class T>
class Numbers {
 public:
  Numbers(const DataFile& file, std::int64_t begin, std::int64_t count)
      : file_(file), at_(begin), left_(count) {}
  T next() {
    if (used_ == block_.size()) {
      block_.resize(std::min<std::size_t>(kBlock, static_cast<std::size_t>(left_)));
      file_.read(at_, std::as_writable_bytes(std::span(block_)));
      at_ += static_cast<std::int64_t>(block_.size() * sizeof(T));
      left_ -= std::ssize(block_);
      used_ = 0;
    }
    return block_[used_++];
  }

 private:
  const DataFile& file_;
  std::int64_t at_, left_;
  std::vector<T> block_;
  std::size_t used_ = 0;
};

struct Header {
  TokenType type;
  std::int64_t sequences, documents;  // one entry more than there are documents
};

Header read_header(const DataFile& file) {
  std::array<char, kHeaderBytes> bytes{};
  if (file.size() < kHeaderBytes) fail(file, fmt::format("{} bytes are no index", file.size()));
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  if (std::string_view(bytes.data(), kMagic.size()) != kMagic)
    fail(file, "it does not begin like a Megatron index (MMIDIDX)");
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  };
  if (number(9) != 1)
    throw Error(
        fmt::format("{}: version {}, and only version 1 is known", file.path().string(), number(9)),
        kHint);
  const TokenType type = type_of_code(file, static_cast<unsigned char>(bytes[17]));
  const std::uint64_t sequences = number(18), documents = number(26);
  const auto rest = static_cast<std::uint64_t>(file.size() - kHeaderBytes);
  // Divisions first, since the counts may be any numbers.
  if (sequences > rest / 12 || documents > rest / 8 || 12 * sequences + 8 * documents > rest)
    fail(file,
         fmt::format("it is too short for {} sequences and {} documents", sequences, documents));
  const std::uint64_t more = rest - 12 * sequences - 8 * documents;
  if (more == sequences && more > 0)
    throw Error(fmt::format("{}: it belongs to a multimodal dataset", file.path().string()),
                "name a dataset of tokens alone");
  if (more > 0) fail(file, fmt::format("{} bytes follow its end", more));
  if (documents < 2) fail(file, "it has no document");
  return {type, static_cast<std::int64_t>(sequences), static_cast<std::int64_t>(documents)};
}

}  // namespace

MegatronIndex read_megatron_index(const DataFile& file) {
  const Header header = read_header(file);
  MegatronIndex index{.type = header.type, .tokens = 0, .starts = {}};
  Numbers<std::int32_t> lengths(file, kHeaderBytes, header.sequences);
  Numbers<std::int64_t> pointers(file, kHeaderBytes + 4 * header.sequences, header.sequences);
  Numbers<std::int64_t> documents(file, kHeaderBytes + 12 * header.sequences, header.documents);
  const std::int64_t width = bytes_of(header.type);
  std::int64_t document = 0, first = documents.next();  // the document that begins next
  if (first != 0) fail(file, fmt::format("the first document begins at sequence {}, not 0", first));
  for (std::int64_t sequence = 0; sequence <= header.sequences; ++sequence) {
    const std::int64_t start = index.tokens;
    if (sequence < header.sequences) {
      const std::int64_t length = lengths.next(), pointer = pointers.next();
      if (length < 0) fail(file, fmt::format("sequence {} has the length {}", sequence, length));
      if (pointer != start * width)
        fail(file,
             fmt::format("sequence {} begins at byte {}, not at {}, where the one before ends",
                         sequence, pointer, start * width));
      index.tokens += length;
      if (index.tokens > kMostTokens) fail(file, "it has more tokens than can be");
    }
    // Several entries may name one sequence: documents without a sequence, or without a token.
    while (first == sequence) {
      if (sequence < header.sequences) {
        if (!index.starts.empty() && index.starts.back() == start) index.starts.pop_back();
        index.starts.push_back(start);
      }
      if (++document == header.documents) {
        first = -1;
        break;
      }
      const std::int64_t next = documents.next();
      if (next < first)
        fail(file, fmt::format("document {} begins at sequence {}, before the one before it at {}",
                               document, next, first));
      first = next;
    }
    if (first == -1 && sequence < header.sequences)
      fail(file, fmt::format("its documents end at sequence {} of {}", sequence, header.sequences));
  }
  if (first != -1)
    fail(file,
         fmt::format("document {} begins at sequence {} of {}", document, first, header.sequences));
  // Documents of empty sequences at the end.
  while (!index.starts.empty() && index.starts.back() >= index.tokens) index.starts.pop_back();
  return index;
}

std::shared_ptr<const Corpus> open_megatron(const fs::path& path, const fs::path& loss_mask) {
  const std::string extension = path.extension().string();
  fs::path prefix = path;
  if (extension == ".bin" || extension == ".idx") prefix.replace_extension();
  const fs::path tokens = prefix.string() + ".bin", index_path = prefix.string() + ".idx";
  const MegatronIndex index = read_megatron_index(DataFile(index_path));
  const std::int64_t bytes = index.tokens * bytes_of(index.type), found = DataFile(tokens).size();
  if (found != bytes)
    throw Error(fmt::format("{} has {} bytes, and {} says {}", tokens.string(), found,
                            index_path.string(), bytes),
                "the two files do not belong together, or one was cut short");
  if (bytes == 0)
    throw Error(fmt::format("{}: the dataset is empty", tokens.string()), "name another one");
  TokenFileOptions options;
  options.type = index.type;
  options.loss_mask = loss_mask;
  options.described = DescribedTokens{.source = index_path.string(), .starts = index.starts};
  return std::make_shared<TokenFile>(tokens, options);
}

}  // namespace longstride
