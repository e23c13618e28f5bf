// When memory may be reused: a fence per lane, after the lane's last access to it.
#pragma once

#include <algorithm>
#include <array>

#include "device/mover.h"

namespace longstride {

struct FenceSet {
  std::array<std::uint64_t, kLanes> numbers{};

  Fence of(Lane lane) const { return {lane, numbers[static_cast<std::size_t>(lane)]}; }
  void set(Fence fence) {
    std::uint64_t& number = numbers[static_cast<std::size_t>(fence.lane)];
    number = std::max(number, fence.number);
  }
  void join(const FenceSet& other) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::max(numbers[i], other.numbers[i]);
  }
};

}  // namespace longstride
