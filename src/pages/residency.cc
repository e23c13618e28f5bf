#include "pages/residency.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace longstride {

Residency::Residency(std::int64_t layers, std::int64_t capacity_pages)
    : capacity_(capacity_pages),
      uses_(static_cast<std::size_t>(layers)),
      chunks_(static_cast<std::size_t>(layers)) {}

void Residency::begin(std::vector<std::vector<BlockUse>> uses) {
  LS_CHECK(used_ == 0 && uses.size() == uses_.size(), "{} pages of the last sequence, {} layers",
           used_, uses.size());
  uses_ = std::move(uses);
}

void Residency::arrive(Block block, std::int64_t pages) {
  LS_CHECK(pages <= free_pages(), "{} pages, room for {}", pages, free_pages());
  chunks_.at(static_cast<std::size_t>(block.layer)).insert(block.chunk);
  used_ += pages;
}

void Residency::leave(Block block, std::int64_t pages) {
  const auto erased = chunks_.at(static_cast<std::size_t>(block.layer)).erase(block.chunk);
  LS_CHECK(erased == 1 && pages <= used_, "layer {} chunk {} is not here", block.layer,
           block.chunk);
  used_ -= pages;
}

std::int64_t Residency::next_use(Block block, std::int64_t position) const {
  const std::vector<BlockUse>& uses = uses_[static_cast<std::size_t>(block.layer)];
  auto use = std::upper_bound(
      uses.begin(), uses.end(), position,
      [](std::int64_t at, const BlockUse& candidate) { return at < candidate.position; });
  use = std::find_if(use, uses.end(), [&](const BlockUse& u) {
    return u.first_chunk <= block.chunk && block.chunk <= u.last_chunk;
  });
  return use == uses.end() ? std::numeric_limits<std::int64_t>::max() : use->position;
}

std::optional<Block> Residency::victim(std::int64_t position, std::int64_t layer,
                                       const BlockUse& own) const {
  std::optional<Block> found;
  std::int64_t latest = -1;
  for (std::size_t l = 0; l < chunks_.size(); ++l) {
    const bool is_own = static_cast<std::int64_t>(l) == layer;
    auto chunk = chunks_[l].begin();
    if (is_own && chunk != chunks_[l].end() && *chunk >= own.first_chunk)
      chunk = chunks_[l].upper_bound(own.last_chunk);
    if (chunk == chunks_[l].end()) continue;
    const Block candidate{static_cast<std::int64_t>(l), *chunk};
    if (const std::int64_t next = next_use(candidate, position); next > latest) {
      latest = next;
      found = candidate;
    }
  }
  return found;
}

}  // namespace longstride
