// Stochastic rounding of F32 to BF16: up or down with probabilities that make the expected value
// exact. The random bits are a pure function of a key and a position, so they repeat on every
// device and in any order. Integer arithmetic only; constexpr, for the host and for kernels.
#pragma once

#include <cstdint>

namespace longstride {

// Derives subkey `number` of `key`, as splitmix64 does: mixed(mixed(seed, step), sequence) looks
// unrelated to that of any other step.
constexpr std::uint64_t mixed(std::uint64_t key, std::int64_t number) {
  std::uint64_t x = key + (static_cast<std::uint64_t>(number) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The random bits of one token's row in a page. Elements are numbered as in [2][K][C].
class RowRounding {
 public:
  constexpr RowRounding(std::uint64_t key, std::int64_t token) : key_(mixed(key, token)) {}

  // For elements 2 * pair (the low 16 bits) and 2 * pair + 1. One 32-bit mix serves both, as it
  // runs for every pair of elements; the 64-bit mix of the key runs once per row.
  constexpr std::uint32_t bits_of_pair(std::uint32_t pair) const {
    std::uint32_t x = pair ^ static_cast<std::uint32_t>(key_);
    x = (x ^ (x >> 16)) * 0x7feb352du;
    // Mixes in the key's other half: otherwise rows whose keys have close low halves would be
    // permutations of each other.
    x = ((x ^ (x >> 15)) + static_cast<std::uint32_t>(key_ >> 32)) * 0x846ca68bu;
    return x ^ (x >> 16);
  }
  constexpr std::uint32_t bits_of(std::uint32_t element) const {
    return (bits_of_pair(element / 2) >> (element % 2 * 16)) & 0xffffu;
  }

 private:
  std::uint64_t key_;
};

// Rounds the F32 with the bits `f32` to one of its two BF16 neighbours, by 16 random bits. Exact
// BF16 values, infinities included, stay unchanged; NaN stays NaN. Finite numbers beyond the
// largest BF16 are rounded towards zero, because the other neighbour is infinity.
constexpr std::uint16_t stochastic_bf16(std::uint32_t f32, std::uint32_t random) {
  const std::uint32_t magnitude = f32 & 0x7fffffffu;
  const std::uint32_t nan = magnitude > 0x7f800000u ? 0x40u : 0u;
  const std::uint32_t added = magnitude < 0x7f7f0000u ? random : 0u;
  return static_cast<std::uint16_t>(((f32 + added) >> 16) | nan);
}

}  // namespace longstride
