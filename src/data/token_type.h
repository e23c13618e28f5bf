// TokenType: how a token is stored in a file, always little-endian.
#pragma once

#include <cstdint>
#include <span>

#include "data/data_file.h"

namespace longstride {

enum class TokenType : std::uint8_t { kU8, kI8, kI16, kU16, kU32, kI64 };

std::int64_t bytes_of(TokenType type);
// The largest value that a token may have and that the type holds.
std::int64_t largest_of(TokenType type);

// Reads tokens [begin, begin + out.size()). Negative ones become the unsigned number of their
// lowest 32 bits, which no vocabulary holds. Throws Error if a value of 64 bits does not fit in 32.
void read_tokens(const DataFile& file, TokenType type, std::int64_t begin,
                 std::span<std::uint32_t> out);

}  // namespace longstride
