// Small helpers for text that users read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longstride {

// The candidate nearest to `word` by edit distance, or "" if none is near enough for `word` to be a
// likely typo of it.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// The first few of `names`, separated by commas, and how many more there are.
std::string some_of(const std::vector<std::string>& names);

}  // namespace longstride
