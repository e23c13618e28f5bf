#include "data/token_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/error.h"

namespace longstride {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kBlockBytes = std::int64_t{32} << 10;

void check_values(const DataFile& file, std::int64_t begin, std::span<const std::int64_t> values) {
  const auto bad = std::find_if(values.begin(), values.end(), [](std::int64_t x) {
    return x < std::numeric_limits<std::int32_t>::min() ||
           x > std::numeric_limits<std::int32_t>::max();
  });
  if (bad != values.end())
    throw Error(fmt::format("{}: token {} has the value {}, which no vocabulary holds",
                            file.path().string(), begin + (bad - values.begin()), *bad),
                "check that the file holds token ids of 64 bits");
}

// Block by block, so that nothing large is allocated.
template <class T>
void widen(const DataFile& file, std::int64_t begin, std::span<std::uint32_t> out) {
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(T));
  std::array<T, kBlock> block;
  for (std::int64_t done = 0; done < std::ssize(out); done += kBlock) {
    const auto narrow = std::span(block).first(
        std::min<std::size_t>(kBlock, out.size() - static_cast<std::size_t>(done)));
    file.read((begin + done) * static_cast<std::int64_t>(sizeof(T)),
              std::as_writable_bytes(narrow));
    if constexpr (sizeof(T) == 8) check_values(file, begin + done, narrow);
    std::uint32_t* wide = out.data() + done;
#pragma omp simd
    for (std::size_t i = 0; i < narrow.size(); ++i)
      wide[i] = static_cast<std::uint32_t>(static_cast<std::int32_t>(block[i]));
  }
}

}  // namespace

std::int64_t bytes_of(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kU32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

std::int64_t largest_of(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return std::numeric_limits<std::uint8_t>::max();
    case TokenType::kI8:
      return std::numeric_limits<std::int8_t>::max();
    case TokenType::kI16:
      return std::numeric_limits<std::int16_t>::max();
    case TokenType::kU16:
      return std::numeric_limits<std::uint16_t>::max();
    case TokenType::kU32:
    case TokenType::kI64:
      return std::numeric_limits<std::int32_t>::max();
  }
  return 0;
}

void read_tokens(const DataFile& file, TokenType type, std::int64_t begin,
                 std::span<std::uint32_t> out) {
  switch (type) {
    case TokenType::kU8:
      return widen<std::uint8_t>(file, begin, out);
    case TokenType::kI8:
      return widen<std::int8_t>(file, begin, out);
    case TokenType::kI16:
      return widen<std::int16_t>(file, begin, out);
    case TokenType::kU16:
      return widen<std::uint16_t>(file, begin, out);
    case TokenType::kU32:
      return file.read(begin * 4, std::as_writable_bytes(out));
    case TokenType::kI64:
      return widen<std::int64_t>(file, begin, out);
  }
}

}  // namespace longstride
