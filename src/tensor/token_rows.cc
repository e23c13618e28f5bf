#include "tensor/token_rows.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace longstride {

void TokenRows::reserve(std::int64_t tokens) {
  const auto count = static_cast<std::size_t>(tokens);
  sorted_.reserve(count);
  groups_.reserve(count);
  rows_.reserve(count);
}

void TokenRows::build(std::span<const std::int32_t> tokens) {
  LS_CHECK(tokens.size() <= std::numeric_limits<std::int32_t>::max(), "{} tokens", tokens.size());
  sorted_.clear();
  groups_.clear();
  rows_.clear();
  for (std::size_t row = 0; row < tokens.size(); ++row)
    sorted_.push_back(std::uint64_t{static_cast<std::uint32_t>(tokens[row])} << 32 | row);
  std::ranges::sort(sorted_);
  for (const std::uint64_t entry : sorted_) {
    const auto token = static_cast<std::int32_t>(entry >> 32),
               row = static_cast<std::int32_t>(entry & 0xffffffffu);
    if (groups_.empty() || groups_.back().token != token)
      groups_.push_back({token, static_cast<std::int32_t>(rows_.size()), 0, row});
    ++groups_.back().count;
    rows_.push_back(row);
  }
  std::ranges::sort(groups_, [](const TokenGroup& a, const TokenGroup& b) {
    return a.count != b.count ? a.count > b.count : a.begin < b.begin;
  });
}

}  // namespace longstride
