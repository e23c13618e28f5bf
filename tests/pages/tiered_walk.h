// A random walk over tiered pages, with a mover that copies late: checks that every page holds what
// was written to it, and that no accesses conflict.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pages/tiered_pages.h"
#include "tests/pages/watched_mover.h"

namespace longstride {

struct TieredWalk {
  static constexpr std::int64_t kLayers = 3, kChunks = 5, kChunkPages = 2,
                                kPages = kChunks * kChunkPages - 1, kBytes = 64;
  static constexpr std::int64_t kLongest = 4;  // pages of an access

  std::int64_t capacity = 0;
  OffloadCapacity offload = {};
  std::uint64_t seed = 0;
  bool zeroed = false;
  std::int64_t pages_per_group = kChunkPages;
  bool sets = false;  // some accesses are sets, and some of them late
  const WaitSite* left_out = nullptr;

  // Two accesses at once, in groups that they fill only partly.
  static std::int64_t least(std::int64_t per, bool sets = false) {
    return 2 * std::min(kPages, sets ? kLongest * per : kLongest + 2 * per);
  }

  struct Outcome {
    MovedBytes moved;
    MoverWatch watch;
    bool right = true;  // every page held what was written to it
  };
  Outcome run() const;

 private:
  std::vector<PageAccess> random_accesses(Random& random) const;
};

inline std::vector<PageAccess> TieredWalk::random_accesses(Random& random) const {
  std::vector<PageAccess> accesses;
  for (std::int64_t i = 0; i < 200; ++i) {
    PageAccess access;
    access.layer = i % kLayers;
    const auto begin = static_cast<std::int64_t>(random.below(kPages));
    access.pages = PageRun{
        begin, std::min(kPages, begin + 1 + static_cast<std::int64_t>(random.below(kLongest)))};
    access.creates = true;
    access.zeroed = zeroed;
    access.changes = !zeroed || random.below(2) == 0;
    if (sets && random.below(2) == 0) {
      std::vector<PageRun> runs;
      for (std::int64_t page = 0; page < kPages && std::ssize(runs) < kLongest; ++page)
        if (random.below(3) == 0) runs.push_back({page, page + 1});
      if (!runs.empty()) access.pages = PageSet(runs);
      access.late = random.below(2) == 0;
    }
    accesses.push_back(access);
  }
  return accesses;
}

// Accesses that overlap in pairs; a random half writes; chunks end at random.
inline TieredWalk::Outcome TieredWalk::run() const {
  Outcome result;
  result.watch = {.seed = seed, .granule = kBytes, .left_out = left_out};
  const std::unique_ptr<Device> device = make_cpu_device();
  WatchedMover mover(result.watch);
  TieredPages pages(*device, offload.records() > 0 ? &mover : nullptr,
                    {.layers = kLayers,
                     .logical_pages = kPages,
                     .pages_per_group = pages_per_group,
                     .page_bytes = kBytes,
                     .capacity = capacity,
                     .offload = offload},
                    "pages");
  Random random(seed);
  std::vector<PageAccess> accesses = random_accesses(random);
  AccessList list(kLayers);
  for (PageAccess access : accesses) {
    if (access.late) access.pages = {};
    list.add(access);
  }
  pages.begin(std::move(list));
  std::map<std::pair<std::int64_t, std::int64_t>, unsigned char> content;
  const auto compute = [&](const PageAccess& access, std::int64_t page) {
    const std::int32_t slot = pages.table(access.layer)[page];
    ASSERT_GE(slot, 0) << "layer " << access.layer << " page " << page;
    auto* at = reinterpret_cast<unsigned char*>(pages.pool().page(slot));
    const auto known = content.find({access.layer, page});
    const bool fresh = known == content.end();
    if (!fresh || zeroed) {
      const unsigned char expected = fresh ? 0 : known->second;
      result.right = result.right &&
                     std::all_of(at, at + kBytes, [&](unsigned char b) { return b == expected; });
      content[{access.layer, page}] = expected;
    }
    if (!access.changes) return;
    const auto value = static_cast<unsigned char>(random.below(256));
    std::memset(at, value, kBytes);
    content[{access.layer, page}] = value;
  };
  std::int64_t waiting = -1;  // an access that has not ended
  for (std::int64_t number = 0; number < std::ssize(accesses); ++number) {
    for (std::int64_t ahead = number; ahead < std::min<std::int64_t>(number + 3, 200); ++ahead) {
      PageAccess& late = accesses[static_cast<std::size_t>(ahead)];
      if (!late.late || (ahead > number && random.below(2) == 0)) continue;
      pages.resolve(ahead, late.pages);
      late.late = false;
    }
    const PageAccess& access = accesses[static_cast<std::size_t>(number)];
    pages.enter(number);
    EXPECT_LE(pages.pool().in_use(), capacity);
    for (const PageRun& run : access.pages.runs())
      for (std::int64_t page = run.begin; page < run.end; ++page) compute(access, page);
    if (waiting >= 0) pages.leave(std::exchange(waiting, -1));
    if (random.below(2) == 0) {
      waiting = number;
      continue;
    }
    pages.leave(number);
    if (random.below(4) == 0) {  // a chunk ends
      const std::int64_t begin = static_cast<std::int64_t>(random.below(kChunks)) * kChunkPages,
                         end = std::min(begin + kChunkPages, kPages);
      pages.release(access.layer, {begin, end});
      for (std::int64_t page = begin; page < end; ++page) content.erase({access.layer, page});
    }
  }
  if (waiting >= 0) pages.leave(waiting);
  result.moved = pages.offload().moved();
  mover.finish();
  pages.release_all();
  EXPECT_EQ(pages.pool().in_use(), 0);
  return result;
}

}  // namespace longstride
