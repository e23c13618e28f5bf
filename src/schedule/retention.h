// Which tensors of a layer's forward pass over a chunk are retained for its backward pass. The
// others are recomputed. Plain data: a set of bits.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace longstride {

enum class Retained : std::uint8_t {
  kInput,      // of the layer: the residual stream
  kQ,          // queries, and also keys if the model normalises them
  kAttention,  // the attention's output and its log-sum-exp
  kMid,        // the residual stream between attention and feed-forward
  kGate,
  kUp,
};
inline constexpr int kRetainedKinds = 6;

class Retention {
 public:
  constexpr Retention() = default;
  constexpr Retention(std::initializer_list<Retained> tensors) {
    for (const Retained t : tensors) *this = *this | of_bits(bit(t));
  }
  static constexpr Retention all() { return of_bits((1u << kRetainedKinds) - 1); }
  static constexpr Retention of_bits(unsigned bits) {
    Retention r;
    r.bits_ = static_cast<std::uint8_t>(bits);
    return r;
  }

  constexpr bool has(Retained t) const { return (bits_ & bit(t)) != 0; }
  constexpr bool has(Retention other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr unsigned bits() const { return bits_; }
  constexpr Retention operator|(Retention other) const { return of_bits(bits_ | other.bits_); }
  constexpr Retention operator&(Retention other) const { return of_bits(bits_ & other.bits_); }
  constexpr Retention operator-(Retention other) const {
    return of_bits(bits_ & ~static_cast<unsigned>(other.bits_));
  }
  constexpr bool operator==(const Retention&) const = default;
  constexpr bool operator<(const Retention& other) const { return bits_ < other.bits_; }

 private:
  static constexpr unsigned bit(Retained t) { return 1u << static_cast<unsigned>(t); }
  std::uint8_t bits_ = 0;
};

}  // namespace longstride
