// The dynamic 8-bit code of bitsandbytes (create_dynamic_map), for values scaled to at most 1: its
// 256 values are linear within each power of ten, with twice as many steps in each larger one. The
// signed code has 127 negative values, 0, the same 127 positive ones and 1; the unsigned one has 0,
// 254 positive values and 1. Constexpr, for the host and for kernels.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace longstride {

// Elements that share a scale, the largest magnitude among them.
inline constexpr std::int64_t kCodeBlock = 256;
// The factor that scales a block; the bound keeps it finite for the smallest numbers.
constexpr float code_scale(float absmax) { return 1.0f / (absmax > 1e-38f ? absmax : 1e-38f); }

// Values are found by their rank: 0 for the value 0, counting by magnitude.
template <bool kSigned>
struct DynamicCode {
  static constexpr int kZero = kSigned ? 127 : 0;  // the code of 0
  static constexpr int kRanks = 256 - kZero;       // 0 and 1 included
  // A magnitude's bin: the upper half of its bits, from 2^-23 to 1. A bin has at most one border
  // between two ranks, so that one look-up finds the nearest value (rank_word).
  static constexpr std::uint32_t kLeast = 0x34000000u, kOne = 0x3f800000u;  // the bits of 2^-23, 1
  static constexpr std::uint32_t kFirstBin = kLeast >> 16;
  static constexpr std::size_t kBins = (kOne >> 16) - kFirstBin + 1;

  std::array<float, 256> values{};      // by code, ascending
  std::array<float, kRanks> borders{};  // between rank r and r + 1; infinity after the last
  // By bin: what makes the sum with the magnitude's bits carry into the upper half, which is then
  // the rank, from above the bin's border on.
  std::array<std::uint32_t, kBins> words{};

  // The rank of the magnitude whose bits are `bits`, at least kLeast and at most kOne, in the upper
  // half; `word` is its bin's.
  static constexpr std::uint32_t rank_word(std::uint32_t word, std::uint32_t bits) {
    return word + bits;
  }
  // The code of rank `rank`; the signed code has no -1, and gives the value before it.
  static constexpr std::uint32_t code_of(std::uint32_t rank, bool negative) {
    constexpr std::uint32_t zero = kZero;
    if (!kSigned || !negative) return zero + rank;
    return zero - (rank < zero ? rank : zero);
  }

  // The nearest value's code; halfway between two, the smaller magnitude's. NaN gives some code.
  constexpr std::uint8_t nearest(float x) const {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = std::clamp(bits & 0x7fffffffu, kLeast, kOne);
    const std::uint32_t word = words[(magnitude >> 16) - kFirstBin];
    return static_cast<std::uint8_t>(code_of(rank_word(word, magnitude) >> 16, (bits >> 31) != 0));
  }

  constexpr DynamicCode() {
    std::size_t rank = 0;
    constexpr std::size_t zero = kZero;
    constexpr float kScales[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    for (int decade = 0; decade < 7; ++decade) {
      const int steps = 1 << (kSigned ? decade : decade + 1);
      for (int i = 0; i < steps; ++i) {
        const float mean = (edge(i, steps) + edge(i + 1, steps)) / 2.0f;
        values[zero + ++rank] = kScales[decade] * mean;
      }
    }
    values[255] = 1.0f;
    if (kSigned)
      for (std::size_t r = 1; r <= zero; ++r) values[zero - r] = -values[zero + r];
    for (std::size_t r = 0; r + 1 < borders.size(); ++r)
      borders[r] = (values[zero + r] + values[zero + r + 1]) / 2.0f;
    borders.back() = std::numeric_limits<float>::infinity();
    std::uint32_t below = 0;  // borders below the bin
    for (std::size_t i = 0; i < kBins; ++i) {
      const std::uint32_t bin = kFirstBin + static_cast<std::uint32_t>(i);
      while (borders[below] < std::bit_cast<float>(bin << 16)) ++below;
      const auto border = std::bit_cast<std::uint32_t>(borders[below]);
      const std::uint32_t low = border >> 16 == bin ? border & 0xffffu : 0xffffu;
      words[i] = ((below - bin) << 16) + (0xffffu - low);
    }
  }

 private:
  // Point i of `steps` even steps from 0.1 to 1, rounded as torch.linspace does.
  static constexpr float edge(int i, int steps) {
    constexpr float kFrom = 0.1f;
    const double step = (1.0f - kFrom) / static_cast<float>(steps);
    return static_cast<float>(i < (steps + 1) / 2 ? double{kFrom} + step * i
                                                  : 1.0 - step * (steps - i));
  }
};

inline constexpr DynamicCode<true> kSignedCode;
// Its values, by which bitsandbytes quantizes the scales of 4-bit blocks too.
inline constexpr std::array<float, 256> kDynamicMap = kSignedCode.values;
inline constexpr DynamicCode<false> kUnsignedCode;

}  // namespace longstride
