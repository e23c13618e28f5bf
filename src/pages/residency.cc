#include "pages/residency.h"

#include "base/error.h"

namespace longstride {

Residency::Residency(std::int64_t layers, std::int64_t chunks)
    : chunks_(chunks),
      states_(static_cast<std::size_t>(layers * chunks)),
      offsets_(states_.size() + 1) {}

template <class F>
void Residency::for_blocks(const BlockUse& use, const F& f) const {
  for (std::int64_t chunk = use.first_chunk; chunk <= use.last_chunk; ++chunk)
    f(index({use.layer, chunk}));
}

void Residency::begin(std::span<const BlockUse> uses) {
  LS_CHECK(here_.empty(), "{} blocks of the last sequence", here_.size());
  LS_CHECK(uses.size() < std::numeric_limits<std::uint32_t>::max(), "{} uses", uses.size());
  uses_.assign(uses.begin(), uses.end());
  std::fill(offsets_.begin(), offsets_.end(), 0);
  for (const BlockUse& use : uses_) for_blocks(use, [&](std::size_t i) { ++offsets_[i + 1]; });
  for (std::size_t i = 1; i < offsets_.size(); ++i) offsets_[i] += offsets_[i - 1];
  times_.resize(offsets_.back());
  for (std::size_t i = 0; i < states_.size(); ++i) states_[i] = {.next = offsets_[i]};
  for (std::size_t number = 0; number < uses_.size(); ++number)
    for_blocks(uses_[number], [&](std::size_t i) {
      times_[states_[i].next++] = static_cast<std::uint32_t>(number);
    });
  for (std::size_t i = 0; i < states_.size(); ++i) states_[i].next = offsets_[i];
}

std::int64_t Residency::next_of(std::size_t block) const {
  const std::size_t next = states_[block].next;
  return next == offsets_[block + 1] ? kNever : times_[next];
}

void Residency::pin(std::int64_t number) {
  for_blocks(uses_.at(static_cast<std::size_t>(number)), [&](std::size_t i) {
    State& s = states_[i];
    LS_CHECK(next_of(i) == number, "use {} begins, and {} is next", number, next_of(i));
    if (s.is_here) here_.erase({next_of(i), i});
    ++s.next;
    if (s.is_here) here_.emplace(next_of(i), i);
    ++s.pins;
  });
}

void Residency::unpin(std::int64_t number) {
  for_blocks(uses_.at(static_cast<std::size_t>(number)), [&](std::size_t i) {
    LS_CHECK(states_[i].pins > 0, "use {} has ended", number);
    --states_[i].pins;
  });
}

void Residency::arrive(Block block) {
  const std::size_t i = index(block);
  LS_CHECK(!states_.at(i).is_here, "layer {} chunk {} is here", block.layer, block.chunk);
  states_[i].is_here = true;
  here_.emplace(next_of(i), i);
}

void Residency::leave(Block block) {
  const std::size_t i = index(block);
  LS_CHECK(states_.at(i).is_here, "layer {} chunk {} is not here", block.layer, block.chunk);
  states_[i].is_here = false;
  here_.erase({next_of(i), i});
}

std::optional<Block> Residency::victim(std::int64_t than) const {
  for (auto at = here_.rbegin(); at != here_.rend() && at->first > than; ++at) {
    if (states_[at->second].pins > 0) continue;
    const auto i = static_cast<std::int64_t>(at->second);
    return Block{i / chunks_, i % chunks_};
  }
  return std::nullopt;
}

}  // namespace longstride
