#include "data/token_values.h"

#include <algorithm>
#include <bit>

namespace longstride {
namespace {

constexpr std::size_t kBlock = 1024;

std::uint32_t swapped(std::uint32_t value, int width) {
  return width == 2 ? __builtin_bswap16(static_cast<std::uint16_t>(value))
                    : __builtin_bswap32(value);
}

}  // namespace

void TokenValues::add(std::int64_t place, std::span<const std::uint32_t> values, int width,
                      std::int64_t vocabulary) {
  LS_CHECK(vocabulary > 0 && vocabulary <= std::int64_t{1} << 31, "vocabulary {}", vocabulary);
  const auto last = static_cast<std::uint32_t>(vocabulary - 1);
  tokens += std::ssize(values);
  while (!values.empty()) {
    const auto block = values.first(std::min(kBlock, values.size()));
    const std::uint32_t* v = block.data();
    // A branch-free pass, which the compiler vectorises. A value above `last`, which is less than
    // 2^31, sets the top bit of `signs`.
    std::uint32_t lanes[4] = {}, signs = 0;
    std::int32_t most = 0;
    const std::size_t whole = block.size() / 4 * 4;
#pragma omp simd reduction(| : signs) reduction(max : most)
    for (std::size_t i = 0; i < whole; ++i) {
      signs |= v[i] | (last - v[i]);
      most = std::max(most, static_cast<std::int32_t>(v[i]));
    }
    for (std::size_t i = 0; i < whole; i += 4)
      for (std::size_t lane = 0; lane < 4; ++lane) lanes[lane] |= v[i + lane];
    for (std::size_t i = whole; i < block.size(); ++i) {
      signs |= v[i] | (last - v[i]);
      most = std::max(most, static_cast<std::int32_t>(v[i]));
      lanes[i - whole] |= v[i];
    }
    for (std::size_t lane = 0; lane < 4; ++lane)
      bits[(static_cast<std::size_t>(place) + lane) % 4] |= lanes[lane];
    largest = std::max(largest, static_cast<std::uint32_t>(most));
    if (signs >> 31 != 0) add_outside(place, block, width, static_cast<std::uint32_t>(vocabulary));
    place += std::ssize(block);
    values = values.subspan(block.size());
  }
}

void TokenValues::add_outside(std::int64_t place, std::span<const std::uint32_t> values, int width,
                              std::uint32_t vocabulary) {
  for (const std::uint32_t value : values) {
    if (value >= vocabulary) {
      ++outside;
      largest = std::max(largest, value);
      halves_fit += static_cast<int>((value & 0xffff) < vocabulary && (value >> 16) < vocabulary);
      swapped_fit += static_cast<int>(swapped(value, width) < vocabulary);
      if (first_outside < 0 || place < first_outside) {
        first_outside = place;
        first_value = value;
      }
    }
    ++place;
  }
}

void TokenValues::merge(const TokenValues& other) {
  tokens += other.tokens;
  largest = std::max(largest, other.largest);
  outside += other.outside;
  halves_fit += other.halves_fit;
  swapped_fit += other.swapped_fit;
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] |= other.bits[i];
  if (other.first_outside >= 0 && (first_outside < 0 || other.first_outside < first_outside)) {
    first_outside = other.first_outside;
    first_value = other.first_value;
  }
}

std::optional<Misread> misread_format(const TokenValues& values, int width,
                                      std::int64_t vocabulary) {
  constexpr std::int64_t kFewest = 64;  // fewer may match by chance
  if (width == 0 || values.tokens < kFewest) return std::nullopt;
  const auto& bits = values.bits;
  // Largest upper half of a token of 32 bits.
  const std::uint32_t upper =
      width == 2 ? std::bit_ceil(static_cast<std::uint32_t>((vocabulary - 1) >> 16) + 1) - 1 : 0;
  if ((bits[1] | bits[3]) <= upper && (bits[0] | bits[2]) > upper) {
    const std::string reason = upper == 0
                                   ? std::string("every second of its tokens is 0")
                                   : fmt::format("every second of its tokens is {} or less", upper);
    if (width == 2 && (bits[2] | bits[3]) != 0)
      return Misread{reason, "it looks like u32: set data.format to \"u32\"", true};
    return Misread{reason,
                   "it looks like int64, which is not read: convert it by numpy.fromfile(FILE, "
                   "\"<i8\").astype(\"<u4\").tofile(\"tokens.bin\"), with data.format \"u32\"",
                   true};
  }
  if (2 * values.outside < values.tokens) return std::nullopt;
  if (values.swapped_fit == values.outside)
    return Misread{"with their bytes in the other order the tokens fit",
                   fmt::format("it looks big-endian: convert it by numpy.fromfile(FILE, "
                               "\">u{}\").astype(\"<u{}\").tofile(\"tokens.bin\")",
                               width, width)};
  if (width == 4 && values.halves_fit == values.outside)
    return Misread{"as tokens of 16 bits they fit",
                   "it looks like u16: set data.format to \"u16\""};
  return std::nullopt;
}

Error outside_error(const std::string& where, const TokenValues& values, int width,
                    std::int64_t vocabulary) {
  std::string message =
      fmt::format("{} has the value {}, but the model's vocabulary is {} (0 to {})", where,
                  values.first_value, vocabulary, vocabulary - 1);
  if (values.outside > 1)
    message += fmt::format("; {} of {} tokens there are outside it", values.outside, values.tokens);
  if (const auto misread = misread_format(values, width, vocabulary))
    return Error(message, misread->hint);
  constexpr std::uint32_t kSmallNegative = 0xffff0000;
  if (width != 2 && values.first_value >= kSmallNegative)
    return Error(message,
                 fmt::format("as a signed number it is {}: exclude targets with data.loss_mask; "
                             "the tokens themselves must be in the vocabulary",
                             static_cast<std::int32_t>(values.first_value)));
  return Error(message, width == 0
                            ? "make the tokens with this model's tokenizer"
                            : "make the tokens with this model's tokenizer, and check data.format");
}

}  // namespace longstride
