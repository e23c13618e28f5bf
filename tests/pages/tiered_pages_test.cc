// Pages that come and go between tiers keep their content, whatever the order and however slow the
// copies are; and no wait can be left out.
#include "pages/tiered_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "base/random.h"
#include "tests/data/temp_directory.h"
#include "tests/pages/watched_mover.h"

namespace longstride {
namespace {

constexpr std::int64_t kLayers = 3, kChunks = 5, kPer = 2, kPages = kChunks * kPer - 1, kBytes = 64;
constexpr std::int64_t kLongest = 4;  // pages of a use
// Two uses at once, in blocks that are not whole.
constexpr std::int64_t kLeast = 2 * (kLongest + 2 * kPer);

std::vector<PageUse> random_uses(Random& random, bool zeroed) {
  std::vector<PageUse> uses;
  for (std::int64_t i = 0; i < 200; ++i) {
    PageUse use;
    use.layer = i % kLayers;
    use.pages.begin = static_cast<std::int64_t>(random.below(kPages));
    use.pages.end =
        std::min(kPages, use.pages.begin + 1 + static_cast<std::int64_t>(random.below(kLongest)));
    use.creates = true;
    use.zeroed = zeroed;
    use.changes = !zeroed || random.below(2) == 0;
    uses.push_back(use);
  }
  return uses;
}

struct Walk {
  MovedBytes moved;
  MoverWatch watch;
  bool right = true;  // every page held what was written to it
};

// Uses that overlap in pairs; a random half writes; chunks end at random.
Walk walk(std::int64_t capacity, const OffloadCapacity& away, std::uint64_t seed, bool zeroed,
          const WaitSite* left_out = nullptr) {
  Walk result;
  result.watch = {.seed = seed, .granule = kBytes, .left_out = left_out};
  const std::unique_ptr<Device> device = make_cpu_device();
  WatchedMover mover(result.watch);
  TieredPages pages(*device, away.records() > 0 ? &mover : nullptr,
                    {kLayers, kPages, kPer, kBytes, capacity, away}, "pages");
  Random random(seed);
  const std::vector<PageUse> uses = random_uses(random, zeroed);
  pages.begin(uses);
  std::map<std::pair<std::int64_t, std::int64_t>, unsigned char> content;
  std::int64_t waiting = -1;  // a use that has not ended
  for (std::int64_t number = 0; number < std::ssize(uses); ++number) {
    const PageUse& use = uses[static_cast<std::size_t>(number)];
    pages.enter(number);
    EXPECT_LE(pages.pool().in_use(), capacity);
    for (std::int64_t page = use.pages.begin; page < use.pages.end; ++page) {
      const std::int32_t slot = pages.table(use.layer)[page];
      EXPECT_GE(slot, 0) << "layer " << use.layer << " page " << page;
      auto* at = reinterpret_cast<unsigned char*>(pages.pool().page(slot));
      const auto known = content.find({use.layer, page});
      const bool fresh = known == content.end();
      if (!fresh || zeroed) {
        const unsigned char expected = fresh ? 0 : known->second;
        result.right = result.right &&
                       std::all_of(at, at + kBytes, [&](unsigned char b) { return b == expected; });
        content[{use.layer, page}] = expected;
      }
      if (!use.changes) continue;
      const auto value = static_cast<unsigned char>(random.below(256));
      std::memset(at, value, kBytes);
      content[{use.layer, page}] = value;
    }
    if (waiting >= 0) pages.leave(std::exchange(waiting, -1));
    if (random.below(2) == 0) {
      waiting = number;
      continue;
    }
    pages.leave(number);
    if (random.below(4) == 0) {  // a chunk ends
      const auto chunk = static_cast<std::int64_t>(random.below(kChunks));
      pages.release(use.layer, {chunk * kPer, std::min((chunk + 1) * kPer, kPages)});
      for (std::int64_t page = chunk * kPer; page < (chunk + 1) * kPer; ++page)
        content.erase({use.layer, page});
    }
  }
  if (waiting >= 0) pages.leave(waiting);
  result.moved = pages.offload().moved();
  mover.finish();
  pages.release_all();
  EXPECT_EQ(pages.pool().in_use(), 0);
  return result;
}

TEST(TieredPages, ContentSurvivesEveryWay) {
  const TempDirectory directory;
  const std::int64_t all = kLayers * kPages, blocks = kLayers * kChunks;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const bool zeroed : {true, false}) {
      EXPECT_EQ(walk(all, {}, seed, zeroed).moved.in, 0);
      for (const std::int64_t capacity : {kLeast, kLeast + 3, all - 1}) {
        const Walk host = walk(capacity, {blocks, 0}, seed, zeroed),
                   disk = walk(capacity, {0, blocks, directory.path(), 3}, seed, zeroed),
                   mixed = walk(capacity, {3, blocks - 3, directory.path()}, seed, zeroed),
                   tight =
                       walk(capacity, {(all - capacity) / kPer + 2 * kLayers + 4, 0}, seed, zeroed);
        for (const Walk& w : {host, disk, mixed, tight}) {
          EXPECT_TRUE(w.right) << "capacity " << capacity << " seed " << seed;
          EXPECT_EQ(w.watch.races, 0) << "capacity " << capacity << " seed " << seed;
        }
        EXPECT_EQ(host.moved.to_disk, 0);
        EXPECT_EQ(disk.moved.to_disk, disk.moved.out);
        EXPECT_EQ(disk.moved.from_disk, disk.moved.in);
        // Where pages wait does not change what moves.
        EXPECT_EQ(host.moved.out, disk.moved.out);
        EXPECT_EQ(host.moved.in, mixed.moved.in);
        if (capacity == kLeast) {
          EXPECT_GT(host.moved.in, 0);
        }
      }
    }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "the file has no name";
}

// Each kind of wait, left out everywhere, is noticed. Without those of the disk there are real
// races, so the thread sanitizer's preset leaves this test out.
TEST(TieredPages, NoWaitCanBeLeftOut) {
  const TempDirectory directory;
  const std::int64_t blocks = kLayers * kChunks;
  std::vector<const WaitSite*> sites = wait_sites_of("pages");
  for (const WaitSite* site : wait_sites_of("offload")) sites.push_back(site);
  EXPECT_EQ(sites.size(), 9u);
  for (const WaitSite* site : sites) {
    bool met = false, noticed = false;
    for (std::uint64_t seed = 0; seed < 40 && !noticed; ++seed)
      for (const OffloadCapacity& away : {OffloadCapacity{blocks, 0}, OffloadCapacity{0, blocks, directory.path(), 3}}) {
        try {
          const Walk w = walk(kLeast, away, seed, seed % 2 == 0, site);
          met = met || w.watch.waits.contains(site);
          noticed = noticed || w.watch.races > 0 || !w.right;
        } catch (const Error&) {  // the disk's checksums notice too
          met = noticed = true;
        }
      }
    EXPECT_TRUE(met && noticed) << site->name() << (met ? "" : ", never met");
  }
}

TEST(TieredPages, ACleanBlockIsNotWrittenAgain) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Mover> mover = device->make_mover();
  TieredPages pages(*device, mover.get(), {2, 1, 1, kBytes, 1, {2, 0}}, "pages");
  const auto use = [](std::int64_t layer, bool first, bool changes) {
    return PageUse{.layer = layer, .pages = {0, 1}, .creates = first, .changes = changes};
  };
  pages.begin({use(0, true, true), use(1, true, true), use(0, false, false), use(1, false, true),
               use(0, false, false)});
  const auto moved_out = [&](std::int64_t number) {
    pages.enter(number);
    pages.leave(number);
    return pages.offload().moved().out;
  };
  EXPECT_EQ(moved_out(0), 0);
  EXPECT_EQ(moved_out(1), kBytes);      // layer 0, for the first time
  EXPECT_EQ(moved_out(2), 2 * kBytes);  // layer 1, for the first time
  EXPECT_EQ(moved_out(3), 2 * kBytes);  // layer 0 leaves as it came
  EXPECT_EQ(moved_out(4), 3 * kBytes);  // layer 1 was changed
  EXPECT_EQ(pages.offload().moved().in, 3 * kBytes);
}

// While one use is computed on, the next ones' pages come.
TEST(TieredPages, PagesComeBeforeTheirUse) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Mover> mover = device->make_mover();
  TieredPages pages(*device, mover.get(), {6, 1, 1, kBytes, 3, {6, 0}}, "pages");
  std::vector<PageUse> uses;
  for (std::int64_t i = 0; i < 24; ++i)
    uses.push_back({.layer = i % 6, .pages = {0, 1}, .creates = i < 6, .changes = i < 6});
  pages.begin(uses);
  for (std::int64_t i = 0; i < 24; ++i) {
    pages.enter(i);
    if (i >= 6 && i + 2 < 24) {
      EXPECT_GE(pages.table((i + 1) % 6)[0], 0) << i;
    }
    pages.leave(i);
  }
  EXPECT_EQ(pages.offload().moved().out, 6 * kBytes);
}

// Of pages that are used in turn, those that fit stay, and only the others move.
TEST(TieredPages, OnlyWhatDoesNotFitMoves) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Mover> mover = device->make_mover();
  constexpr std::int64_t kCount = 40, kHere = 30, kRounds = 10;
  TieredPages pages(*device, mover.get(), {kCount, 1, 1, kBytes, kHere, {kCount, 0}}, "pages");
  std::vector<PageUse> uses;
  for (std::int64_t i = 0; i < kCount * kRounds; ++i)
    uses.push_back(
        {.layer = i % kCount, .pages = {0, 1}, .creates = i < kCount, .changes = i < kCount});
  pages.begin(uses);
  for (std::int64_t i = 0; i < std::ssize(uses); ++i) {
    pages.enter(i);
    pages.leave(i);
  }
  // A few more than do not fit: what comes ahead of its use takes room too.
  EXPECT_LE(pages.offload().moved().in, (kCount - kHere + 4) * (kRounds - 1) * kBytes);
}

TEST(TieredPages, UsesComeInOrder) {
  const std::unique_ptr<Device> device = make_cpu_device();
  TieredPages pages(*device, nullptr, {1, 4, 2, kBytes, 4, {}}, "pages");
  pages.begin({{.layer = 0, .pages = {0, 2}, .creates = true},
               {.layer = 0, .pages = {0, 4}, .creates = true}});
  EXPECT_THROW(pages.enter(1), InternalError);
  pages.enter(0);
  pages.leave(0);
  EXPECT_THROW(pages.enter(0), InternalError);
  EXPECT_NO_THROW(pages.enter(1));
}

TEST(TieredPages, WhatIsNewMustNotExist) {
  const std::unique_ptr<Device> device = make_cpu_device();
  TieredPages pages(*device, nullptr, {1, 4, 2, kBytes, 4, {}}, "pages");
  pages.begin({{.layer = 0, .pages = {0, 2}, .creates = true},
               {.layer = 0, .pages = {1, 4}, .creates = true, .all_new = true}});
  pages.enter(0);
  pages.leave(0);
  EXPECT_THROW(pages.enter(1), InternalError);
}

}  // namespace
}  // namespace longstride
