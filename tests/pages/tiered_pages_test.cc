// Pages that move between tiers keep their content, whatever the order and however slow the copies
// are; and no wait can be omitted.
#include "pages/tiered_pages.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/data/temp_directory.h"
#include "tests/offload/wait_sites.h"
#include "tests/pages/tiered_walk.h"

namespace longstride {
namespace {

using Walk = TieredWalk;
constexpr std::int64_t kBytes = Walk::kBytes, kAll = Walk::kLayers * Walk::kPages;

std::int64_t groups_of(std::int64_t per) {
  return Walk::kLayers * ((Walk::kPages + per - 1) / per);
}

TEST(TieredPages, ContentSurvivesEveryWay) {
  const TempDirectory directory;
  const std::int64_t per = Walk::kChunkPages, groups = groups_of(per), least = Walk::least(per);
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const bool zeroed : {true, false}) {
      const auto run = [&](std::int64_t capacity, const OffloadCapacity& offload) {
        const Walk::Outcome w =
            Walk{.capacity = capacity, .offload = offload, .seed = seed, .zeroed = zeroed}.run();
        EXPECT_TRUE(w.right) << "capacity " << capacity << " seed " << seed;
        EXPECT_EQ(w.watch.races, 0) << "capacity " << capacity << " seed " << seed;
        return w.moved;
      };
      EXPECT_EQ(run(kAll, {}).in, 0);
      for (const std::int64_t capacity : {least, least + 3, kAll - 1}) {
        const MovedBytes host = run(capacity, {groups, 0}),
                         disk = run(capacity, {0, groups, directory.path(), 3}),
                         mixed = run(capacity, {3, groups - 3, directory.path()});
        run(capacity, {(kAll - capacity) / per + 2 * Walk::kLayers + 4, 0});
        EXPECT_EQ(host.to_disk, 0);
        EXPECT_EQ(disk.to_disk, disk.out);
        EXPECT_EQ(disk.from_disk, disk.in);
        // The tier of offloaded pages does not change what moves.
        EXPECT_EQ(host.out, disk.out);
        EXPECT_EQ(host.in, mixed.in);
        if (capacity == least) {
          EXPECT_GT(host.in, 0);
        }
      }
    }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path())) << "the file has no name";
}

// Groups smaller than a chunk, groups that straddle two, and one that holds a whole layer; accesses
// that are sets, and some late accesses.
TEST(TieredPages, AnyGroupsAndSets) {
  const TempDirectory directory;
  for (const std::int64_t per : {1, 2, 3, 4, 12})
    for (const bool sets : {false, true})
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        const std::int64_t groups = groups_of(per), least = Walk::least(per, sets);
        for (const OffloadCapacity& offload :
             {OffloadCapacity{groups, 0}, OffloadCapacity{1, groups - 1, directory.path(), 3}})
          for (const std::int64_t capacity : {least, (least + kAll) / 2}) {
            const Walk::Outcome w = Walk{.capacity = capacity,
                                         .offload = offload,
                                         .seed = seed,
                                         .zeroed = seed % 2 == 0,
                                         .pages_per_group = per,
                                         .sets = sets}
                                        .run();
            EXPECT_TRUE(w.right) << "groups of " << per << " seed " << seed;
            EXPECT_EQ(w.watch.races, 0) << "groups of " << per << " seed " << seed;
            if (capacity == least) {
              EXPECT_GT(w.moved.in, 0) << "groups of " << per << " seed " << seed;
            }
          }
        const Walk::Outcome resident = Walk{.capacity = kAll,
                                            .seed = seed,
                                            .zeroed = true,
                                            .pages_per_group = per,
                                            .sets = sets}
                                           .run();
        EXPECT_TRUE(resident.right);
      }
}

// Omitting any kind of wait is detected. Without the disk's waits there are real races, so the
// thread sanitizer's preset excludes this test.
TEST(TieredPages, NoWaitCanBeLeftOut) {
  const TempDirectory directory;
  const std::int64_t per = Walk::kChunkPages, groups = groups_of(per);
  std::vector<const WaitSite*> sites = wait_sites_of("pages");
  for (const WaitSite* site : wait_sites_of("offload")) sites.push_back(site);
  for (const WaitSite* site : sites) {
    bool met = false, noticed = false;
    for (std::uint64_t seed = 0; seed < 40 && !noticed; ++seed)
      for (const OffloadCapacity& offload :
           {OffloadCapacity{groups, 0}, OffloadCapacity{0, groups, directory.path(), 3}}) {
        try {
          const Walk::Outcome w = Walk{.capacity = Walk::least(per),
                                       .offload = offload,
                                       .seed = seed,
                                       .zeroed = seed % 2 == 0,
                                       .left_out = site}
                                      .run();
          met = met || w.watch.waits.contains(site);
          noticed = noticed || w.watch.races > 0 || !w.right;
        } catch (const Error&) {  // the disk's checksums detect it too
          met = noticed = true;
        }
      }
    EXPECT_TRUE(met && noticed) << site->name() << (met ? "" : ", never met");
  }
}

AccessList list_of(std::int64_t layers, const std::vector<PageAccess>& accesses) {
  AccessList list(layers);
  for (const PageAccess& access : accesses) list.add(access);
  return list;
}

// Groups of one page in `layers` layers, offloaded to host memory.
TieredShape one_page_each(std::int64_t layers, std::int64_t capacity) {
  return {.layers = layers,
          .logical_pages = 1,
          .pages_per_group = 1,
          .page_bytes = kBytes,
          .capacity = capacity,
          .offload = {layers, 0}};
}

TieredShape four_pages() {
  return {
      .layers = 1, .logical_pages = 4, .pages_per_group = 2, .page_bytes = kBytes, .capacity = 4};
}

TEST(TieredPages, ACleanGroupIsNotWrittenAgain) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Mover> mover = device->make_mover();
  TieredPages pages(*device, mover.get(), one_page_each(2, 1), "pages");
  const auto access = [](std::int64_t layer, bool first, bool changes) {
    return PageAccess{.layer = layer, .pages = PageRun{0, 1}, .creates = first, .changes = changes};
  };
  pages.begin(list_of(2, {access(0, true, true), access(1, true, true), access(0, false, false),
                          access(1, false, true), access(0, false, false)}));
  const auto moved_out = [&](std::int64_t number) {
    pages.enter(number);
    pages.leave(number);
    return pages.offload().moved().out;
  };
  EXPECT_EQ(moved_out(0), 0);
  EXPECT_EQ(moved_out(1), kBytes);      // layer 0, for the first time
  EXPECT_EQ(moved_out(2), 2 * kBytes);  // layer 1, for the first time
  EXPECT_EQ(moved_out(3), 2 * kBytes);  // layer 0 is unchanged
  EXPECT_EQ(moved_out(4), 3 * kBytes);  // layer 1 was changed
  EXPECT_EQ(pages.offload().moved().in, 3 * kBytes);
}

// While one access is computed, the pages of the next ones are fetched.
TEST(TieredPages, PagesComeBeforeTheirAccess) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Mover> mover = device->make_mover();
  TieredPages pages(*device, mover.get(), one_page_each(6, 3), "pages");
  std::vector<PageAccess> accesses;
  for (std::int64_t i = 0; i < 24; ++i)
    accesses.push_back(
        {.layer = i % 6, .pages = PageRun{0, 1}, .creates = i < 6, .changes = i < 6});
  pages.begin(list_of(6, accesses));
  for (std::int64_t i = 0; i < 24; ++i) {
    pages.enter(i);
    if (i >= 6 && i + 2 < 24) {
      EXPECT_GE(pages.table((i + 1) % 6)[0], 0) << i;
    }
    pages.leave(i);
  }
  EXPECT_EQ(pages.offload().moved().out, 6 * kBytes);
}

// Of pages that are accessed in turn, those that fit stay, and only the others move.
TEST(TieredPages, OnlyWhatDoesNotFitMoves) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Mover> mover = device->make_mover();
  constexpr std::int64_t kCount = 40, kHere = 30, kRounds = 10;
  TieredPages pages(*device, mover.get(), one_page_each(kCount, kHere), "pages");
  std::vector<PageAccess> accesses;
  for (std::int64_t i = 0; i < kCount * kRounds; ++i)
    accesses.push_back({.layer = i % kCount,
                        .pages = PageRun{0, 1},
                        .creates = i < kCount,
                        .changes = i < kCount});
  pages.begin(list_of(kCount, accesses));
  for (std::int64_t i = 0; i < std::ssize(accesses); ++i) {
    pages.enter(i);
    pages.leave(i);
  }
  // A few more than do not fit: prefetched pages take capacity too.
  EXPECT_LE(pages.offload().moved().in, (kCount - kHere + 4) * (kRounds - 1) * kBytes);
}

TEST(TieredPages, AccessesComeInOrder) {
  const std::unique_ptr<Device> device = make_cpu_device();
  TieredPages pages(*device, nullptr, four_pages(), "pages");
  pages.begin(list_of(1, {{.layer = 0, .pages = PageRun{0, 2}, .creates = true},
                          {.layer = 0, .pages = PageRun{0, 4}, .creates = true}}));
  EXPECT_THROW(pages.enter(1), InternalError);
  pages.enter(0);
  pages.leave(0);
  EXPECT_THROW(pages.enter(0), InternalError);
  EXPECT_NO_THROW(pages.enter(1));
}

TEST(TieredPages, WhatIsNewMustNotExist) {
  const std::unique_ptr<Device> device = make_cpu_device();
  TieredPages pages(*device, nullptr, four_pages(), "pages");
  pages.begin(list_of(1, {{.layer = 0, .pages = PageRun{0, 2}, .creates = true},
                          {.layer = 0, .pages = PageRun{1, 4}, .creates = true, .all_new = true}}));
  pages.enter(0);
  pages.leave(0);
  EXPECT_THROW(pages.enter(1), InternalError);
}

}  // namespace
}  // namespace longstride
