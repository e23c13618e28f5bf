// The search beyond greedy orders: as good as brute force where that is possible, never worse than
// greedy, and on two levels where layers repeat.
#include "plan/placement_mip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plan/placement_blocks.h"
#include "plan/storage_program.h"
#include "tests/plan/random_traces.h"

namespace longstride {
namespace {

// Placed in the order of its addresses, no tensor of a placement gets a higher one: one of the
// orders is the best placement.
std::int64_t least_bytes(const WorkspaceTrace& trace) {
  std::vector<std::size_t> order(trace.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t least = place_in_order(trace, order).bytes;
  while (std::next_permutation(order.begin(), order.end()))
    least = std::min(least, place_in_order(trace, order).bytes);
  return least;
}

TEST(PlaceBest, IsAsGoodAsBruteForce) {
  Random random(64);
  int searched = 0;
  for (int i = 0; i < 60; ++i) {
    const WorkspaceTrace trace =
        i % 2 == 0 ? hard_trace(random, 6, 12) : random_units(random, pick(random, 1, 6), 12);
    const BestPlacement best = place_best(trace, {.good_enough = 0});
    ASSERT_EQ(check_placement(trace, best.placement), "") << "case " << i;
    const std::int64_t least = least_bytes(trace);
    ASSERT_EQ(best.placement.bytes, least) << "case " << i;
    ASSERT_EQ(best.bound, least) << "case " << i;
    ASSERT_TRUE(best.optimal());
    searched += best.searched;
  }
  EXPECT_GE(searched, 30);
}

TEST(PlaceBest, IsNeverWorseThanGreedy) {
  Random random(65);
  for (int i = 0; i < 40; ++i) {
    const WorkspaceTrace trace = random_trace(random, pick(random, 0, 200));
    // Few nodes: the result must be sound wherever the search stops.
    const BestPlacement best = place_best(trace, {.good_enough = 0, .pairs = 150, .nodes = 5});
    ASSERT_EQ(check_placement(trace, best.placement), "") << "case " << i;
    EXPECT_LE(best.placement.bytes, place_greedy(trace).bytes);
    EXPECT_LE(best.bound, best.placement.bytes);
    EXPECT_GE(best.bound, live_bytes_bound(trace));
  }
}

TEST(PlaceBest, IsTheSameEveryTime) {
  Random random(66);
  for (int i = 0; i < 5; ++i) {
    const WorkspaceTrace trace = hard_trace(random, 14, 40);
    const BestPlacement a = place_best(trace, {.good_enough = 0}),
                        b = place_best(WorkspaceTrace(trace), {.good_enough = 0});
    EXPECT_EQ(a.placement, b.placement);
    EXPECT_EQ(a.bound, b.bound);
  }
}

TEST(PlaceBest, NothingIsSolvedForASmallGap) {
  Random random(67);
  const WorkspaceTrace trace = hard_trace(random, 10, 40);
  const BestPlacement quick = place_best(trace, {.good_enough = 10});
  EXPECT_FALSE(quick.searched);
  EXPECT_EQ(quick.method, PlacementMethod::kGreedy);
  EXPECT_GT(quick.gap(), 0);
  EXPECT_TRUE(place_best(trace, {.good_enough = 0}).searched);
}

TEST(PlaceBest, NothingTakesNothing) {
  EXPECT_EQ(place_best({}).placement.bytes, 0);
  EXPECT_TRUE(place_best({}).optimal());
  EXPECT_EQ(place_best({}).gap(), 0);
}

TEST(SolveStorage, StopsAtTheBoundAndSearchesBelowTheLimitOnly) {
  Random random(68);
  const WorkspaceTrace trace = hard_trace(random, 8, 12);
  const std::int64_t live = live_bytes_bound(trace), greedy = place_by_orders(trace, live).bytes;
  const StorageSolution found = solve_storage(trace, greedy, {1000, 10});
  ASSERT_TRUE(found.placement);
  EXPECT_EQ(check_placement(trace, *found.placement), "");
  EXPECT_EQ(found.placement->bytes, live);
  EXPECT_EQ(found.bound, live);
  const StorageSolution none = solve_storage(trace, live, {1000, 10});
  EXPECT_FALSE(none.placement);
  EXPECT_EQ(none.bound, live);
}

// Layers as a pass has them: in each, the same tensors live and die, and one more stays until the
// layers have passed in reverse.
WorkspaceTrace layers_of(const WorkspaceTrace& layer, std::int64_t layers, std::int64_t stays) {
  std::int64_t length = 0;
  for (const WorkspaceRequest& r : layer) length = std::max(length, r.end);
  WorkspaceTrace trace;
  const std::int64_t period = length + 1, end = layers * period;
  for (std::int64_t l = 0; l < layers; ++l) {
    trace.push_back({"stays", stays, l * period, end + layers - l});
    for (const WorkspaceRequest& r : layer)
      trace.push_back({r.name, r.bytes, l * period + 1 + r.begin, l * period + 1 + r.end});
  }
  return trace;
}

TEST(RepeatedBlocks, AreTheLayers) {
  const WorkspaceTrace layer = {{"a", 512, 0, 3}, {"b", 1024, 1, 2}, {"c", 768, 4, 5}};
  WorkspaceTrace trace = layers_of(layer, 5, 2048);
  trace.push_back({"head", 4096, 1000, 1001});
  const std::vector<RepeatedBlock> blocks = find_repeated_blocks(trace);
  ASSERT_EQ(blocks.size(), 1U);
  ASSERT_EQ(blocks[0].copies.size(), 5U);
  for (std::size_t l = 0; l < 5; ++l)
    EXPECT_EQ(blocks[0].copies[l], (std::vector<std::size_t>{4 * l + 1, 4 * l + 2, 4 * l + 3}));
  EXPECT_TRUE(find_repeated_blocks(layer).empty());
  EXPECT_TRUE(find_repeated_blocks({}).empty());
}

TEST(RepeatedBlocks, LeaveOutWhatLivesDifferently) {
  const WorkspaceTrace layer = {{"a", 512, 0, 3}, {"b", 1024, 1, 2}, {"c", 768, 4, 5}};
  WorkspaceTrace trace = layers_of(layer, 3, 2048);
  ++trace[6].end;  // b of the second layer
  const std::vector<RepeatedBlock> blocks = find_repeated_blocks(trace);
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(blocks[0].copies[1], (std::vector<std::size_t>{5, 7}));
}

TEST(MergeEqualLifetimes, CountsOnlyWhereSomethingEnds) {
  const WorkspaceTrace trace = {
      {"a", 300, 0, 9}, {"b", 512, 1, 5}, {"c", 256, 2, 10}, {"d", 256, 6, 8}};
  const MergedTrace merged = merge_equal_lifetimes(trace);
  EXPECT_EQ(merged.groups, (std::vector<std::vector<std::size_t>>{{0, 2}, {1}, {3}}));
  EXPECT_EQ(merged.trace[0].bytes, 512 + 256);
  EXPECT_EQ(live_bytes_bound(merged.trace), live_bytes_bound(trace));
}

TEST(PlaceBest, SolvesALayerOnceForAll) {
  Random random(69);
  for (int i = 0; i < 3; ++i) {
    const WorkspaceTrace trace = layers_of(hard_trace(random, 9, 20), 24, 5 * kPlacementAlignment);
    // Too many pairs for one program; few enough for each of the levels.
    const PlacementLimits limits{.good_enough = 0, .pairs = 700};
    ASSERT_GT(pairs_alive_together(trace), limits.pairs);
    const std::int64_t bound = live_bytes_bound(trace);
    ASSERT_GT(place_by_orders(trace, bound).bytes, bound);
    const BestPlacement best = place_best(trace, limits);
    EXPECT_EQ(check_placement(trace, best.placement), "");
    EXPECT_EQ(best.method, PlacementMethod::kTwoLevels);
    EXPECT_EQ(best.placement.bytes, bound);
  }
}

}  // namespace
}  // namespace longstride
