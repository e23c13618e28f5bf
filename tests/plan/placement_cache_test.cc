#include "plan/placement_cache.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/data/temp_directory.h"
#include "tests/plan/random_traces.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

const WorkspaceTrace kTrace = [] {
  Random random(70);
  return hard_trace(random, 6, 12);
}();

BestPlacement solved() {
  BestPlacement best;
  best.placement = place_greedy(kTrace);
  best.bound = live_bytes_bound(kTrace);
  best.method = PlacementMethod::kProgram;
  best.searched = true;
  return best;
}

TEST(PlacementCache, ReturnsWhatItKept) {
  const TempDirectory directory;
  const PlacementCache cache(directory.path() / "deep" / "placements");
  EXPECT_FALSE(cache.find(kTrace));
  cache.keep(kTrace, {}, solved());
  const auto found = cache.find(kTrace);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->placement, solved().placement);
  EXPECT_EQ(found->bound, solved().bound);
  EXPECT_EQ(found->method, PlacementMethod::kProgram);
  WorkspaceTrace renamed = kTrace;
  renamed[0].name = "z";
  EXPECT_TRUE(cache.find(renamed));
  WorkspaceTrace other = kTrace;
  other[3].bytes += kPlacementAlignment;
  EXPECT_FALSE(cache.find(other));
  EXPECT_FALSE(cache.find(kTrace, {.nodes = 7}));
}

TEST(PlacementCache, ADamagedFileCountsAsAbsentAndIsReplaced) {
  const TempDirectory directory;
  const PlacementCache cache(directory.path());
  cache.keep(kTrace, {}, solved());
  const std::string good = read_text(cache.file(kTrace));
  std::string flipped = good;
  flipped[good.size() - 3] ^= 1;
  for (const std::string& bad : {std::string(), std::string("{}"), std::string("0\n{}"), flipped,
                                 good.substr(0, good.size() / 2), good + " "}) {
    write_file_atomic(cache.file(kTrace), bad);
    EXPECT_FALSE(cache.find(kTrace)) << bad;
    cache.keep(kTrace, {}, solved());
    EXPECT_TRUE(cache.find(kTrace));
  }
}

TEST(PlacementCache, AnUnsoundPlacementIsNotReturned) {
  const TempDirectory directory;
  const PlacementCache cache(directory.path());
  BestPlacement overlapping = solved();
  for (std::int64_t& offset : overlapping.placement.offsets) offset = 0;
  cache.keep(kTrace, {}, overlapping);
  EXPECT_TRUE(fs::exists(cache.file(kTrace)));
  EXPECT_FALSE(cache.find(kTrace));
  BestPlacement boasting = solved();
  boasting.bound = boasting.placement.bytes + 1;
  cache.keep(kTrace, {}, boasting);
  EXPECT_FALSE(cache.find(kTrace));
}

TEST(PlacementCache, APlaceThatCannotBeWrittenStopsNothing) {
  const TempDirectory directory;
  for (const fs::path& folder : {fs::path(), directory.write_text("file", "") / "placements"}) {
    const PlacementCache cache(folder);
    cache.keep(kTrace, {}, solved());
    EXPECT_FALSE(cache.find(kTrace));
    EXPECT_EQ(place_best(kTrace, cache, {}).placement, place_best(kTrace).placement);
  }
}

TEST(PlacementCache, KeepsOnlyWhatWasSolved) {
  const TempDirectory directory;
  const PlacementCache cache(directory.path());
  place_best({{"a", 100, 0, 1}}, cache, {});
  EXPECT_TRUE(fs::is_empty(directory.path()));
  const BestPlacement first = place_best(kTrace, cache, {});
  ASSERT_TRUE(first.searched);
  EXPECT_TRUE(fs::exists(cache.file(kTrace)));
  EXPECT_EQ(place_best(kTrace, cache, {}).placement, first.placement);
}

}  // namespace
}  // namespace longstride
