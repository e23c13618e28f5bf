#include "base/random.h"

#include <cmath>
#include <numbers>

namespace longstride {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c,
                                    std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0],
                        b = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

std::uint32_t Random::next_u32() {
  const auto lane = static_cast<std::size_t>(position_ & 3);
  if (lane == 0) {
    const std::uint64_t block = position_ >> 2;
    block_ =
        philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
               {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  }
  ++position_;
  return block_[lane];
}

std::uint64_t Random::below(std::uint64_t n) {
  // Values below `reject` would make some remainders likelier than others.
  const std::uint64_t reject = (0 - n) % n;
  std::uint64_t x = next_u64();
  while (x < reject) x = next_u64();
  return x % n;
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace longstride
