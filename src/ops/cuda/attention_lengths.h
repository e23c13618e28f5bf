// How many queries cuDNN is given. It takes some 40 ms to prepare for each new length, and
// sequences that are not packed end anywhere, so odd lengths are padded to one of a few.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace longstride::ops::cuda {

inline constexpr std::int64_t kFewQueries = 256, kQueryMultiple = 1024;

// The length that any number of queries is padded to.
constexpr std::int64_t filled_up(std::int64_t queries) {
  return queries <= kFewQueries ? kFewQueries
                                : (queries + kQueryMultiple - 1) / kQueryMultiple * kQueryMultiple;
}

// The chunks of a full-length sequence are not padded. Not thread-safe.
class QueryLengths {
 public:
  // Sets the lengths of a full chunk and of the last chunk of a full sequence. Replaces earlier
  // ones, so that a run's arithmetic does not depend on what the process did before.
  void expect(std::int64_t chunk, std::int64_t last) { expected_ = {chunk, last}; }
  // At least `queries`, at most filled_up(queries).
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
