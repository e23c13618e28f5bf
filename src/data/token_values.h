// Statistics of a token file's values: whether they are in the vocabulary, and whether they look
// like another format.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"

namespace longstride {

// Of any ranges of one file. The order in which they are added does not matter.
struct TokenValues {
  std::int64_t tokens = 0;
  std::uint32_t largest = 0;
  std::int64_t outside = 0;         // of the vocabulary
  std::int64_t first_outside = -1;  // its index in the file; -1: none
  std::uint32_t first_value = 0;    // at that index
  // Values outside that would be inside as two tokens of 16 bits; or with their bytes swapped.
  std::int64_t halves_fit = 0, swapped_fit = 0;
  // All bits that occur at indices 0, 1, 2 and 3 modulo 4.
  std::array<std::uint32_t, 4> bits = {};

  // `place` is the first value's index in the file, `width` the bytes of a token there, or 0 if a
  // header says what the file holds (TokenRange).
  void add(std::int64_t place, std::span<const std::uint32_t> values, int width,
           std::int64_t vocabulary);
  void merge(const TokenValues& other);
  bool operator==(const TokenValues&) const = default;

 private:
  void add_outside(std::int64_t place, std::span<const std::uint32_t> values, int width,
                   std::uint32_t vocabulary);
};

// Another format that the values look like.
struct Misread {
  std::string reason;  // "every second of its tokens is 0"
  std::string hint;
  bool certain = false;  // wrong even if all values are in the vocabulary
};
std::optional<Misread> misread_format(const TokenValues& values, int width,
                                      std::int64_t vocabulary);

// The error for a token outside the vocabulary. `where` is its location ("tokens.bin: token 17").
Error outside_error(const std::string& where, const TokenValues& values, int width,
                    std::int64_t vocabulary);

}  // namespace longstride
