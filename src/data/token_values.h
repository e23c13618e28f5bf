// What the values of a token file are like: in the vocabulary or not, and whether they look like
// those of another format.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"

namespace longstride {

// Of some stretches of one file. The order in which they are added changes nothing.
struct TokenValues {
  std::int64_t tokens = 0;
  std::uint32_t largest = 0;
  std::int64_t outside = 0;         // of the vocabulary
  std::int64_t first_outside = -1;  // its place in the file; -1: none
  std::uint32_t first_value = 0;    // at that place
  // Of those outside: as two tokens of 16 bits they would be inside; with their bytes in the other
  // order they would.
  std::int64_t halves_fit = 0, swapped_fit = 0;
  // All bits that occur at places 0, 1, 2 and 3 modulo 4.
  std::array<std::uint32_t, 4> bits = {};

  // `place` is the first value's place in the file, `width` the bytes of a token there.
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
  bool certain = false;  // wrong even where all values are in the vocabulary
};
std::optional<Misread> misread_format(const TokenValues& values, int width,
                                      std::int64_t vocabulary);

// What to say of a token outside the vocabulary. `where` is its place ("tokens.bin: token 17").
Error outside_error(const std::string& where, const TokenValues& values, int width,
                    std::int64_t vocabulary);

}  // namespace longstride
