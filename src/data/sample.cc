#include "data/sample.h"

#include <algorithm>

namespace longstride {

std::int64_t Sample::counted_targets() const {
  return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
}

std::vector<std::int64_t> Sample::document_lengths() const {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < document_starts.size(); ++i) {
    const std::int64_t end = i + 1 < document_starts.size() ? document_starts[i + 1] : size();
    lengths.push_back(end - document_starts[i]);
  }
  return lengths;
}

}  // namespace longstride
