// Small helpers for texts that people read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longstride {

// The candidate nearest to `word` by edit distance, or "" where none is near enough to be a likely
// typo.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace longstride
