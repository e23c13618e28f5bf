// Counter-based random numbers (Philox 4x32-10): a value is a pure function of (seed, stream,
// counter), so any part of a run can be recomputed, in any order, on any device.
#pragma once

#include <array>
#include <cstdint>

namespace longstride {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

// A cursor over one stream. Copyable; the state is (seed, stream, position). Not thread-safe.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  std::uint32_t next_u32();
  std::uint64_t next_u64() { return (std::uint64_t{next_u32()} << 32) | next_u32(); }
  // In [0, n), without bias; n >= 1.
  std::uint64_t below(std::uint64_t n);
  // In [0, 1).
  double uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  double normal();

 private:
  std::uint64_t seed_, stream_, position_ = 0;
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace longstride
