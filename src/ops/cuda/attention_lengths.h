// For how many queries cuDNN is asked. It prepares some 40 ms for every length it has not met, and
// sequences that are not packed end anywhere: other lengths are filled up to few.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace longstride::ops::cuda {

inline constexpr std::int64_t kFewQueries = 256, kQueryMultiple = 1024;

// The length that any number of queries is filled up to.
constexpr std::int64_t filled_up(std::int64_t queries) {
  return queries <= kFewQueries ? kFewQueries
                                : (queries + kQueryMultiple - 1) / kQueryMultiple * kQueryMultiple;
}

// The chunks of a sequence of full length are computed as they are. Plain data.
class QueryLengths {
 public:
  // A full chunk and the last one of a full sequence; those said before are forgotten, so that a
  // run's arithmetic does not depend on what the process did before it.
  void expect(std::int64_t chunk, std::int64_t last) { expected_ = {chunk, last}; }
  // Never less than `queries`, nor more than filled_up says.
  std::int64_t of(std::int64_t queries) const {
    std::int64_t length = filled_up(queries);
    for (const std::int64_t expected : expected_)
      if (expected >= queries) length = std::min(length, expected);
    return length;
  }

 private:
  std::vector<std::int64_t> expected_;
};

}  // namespace longstride::ops::cuda
