// When memory may be used again: the last thing each lane was given to do with it.
#pragma once

#include <algorithm>
#include <array>

#include "device/mover.h"

namespace longstride {

struct PageMarks {
  std::array<std::uint64_t, kLanes> numbers{};

  Mark of(Lane lane) const { return {lane, numbers[static_cast<std::size_t>(lane)]}; }
  void set(Mark mark) {
    std::uint64_t& number = numbers[static_cast<std::size_t>(mark.lane)];
    number = std::max(number, mark.number);
  }
  void join(const PageMarks& other) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = std::max(numbers[i], other.numbers[i]);
  }
};

}  // namespace longstride
