#include "plan/placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plan/random_traces.h"

namespace longstride {
namespace {

// The definition: no two tensors alive at the same time share a byte.
bool is_sound(const WorkspaceTrace& trace, const Placement& placement) {
  if (placement.offsets.size() != trace.size()) return false;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const std::int64_t begin = placement.offsets[i], end = begin + trace[i].bytes;
    if (begin < 0 || begin % kPlacementAlignment != 0 || end > placement.bytes) return false;
    for (std::size_t j = 0; j < i; ++j) {
      const bool in_time = trace[i].begin < trace[j].end && trace[j].begin < trace[i].end;
      const std::int64_t other = placement.offsets[j];
      const bool in_space = std::max(begin, other) < std::min(end, other + trace[j].bytes);
      if (in_time && in_space) return false;
    }
  }
  return true;
}

TEST(PlaceGreedy, PlacesRandomTraces) {
  Random random(61);
  double worst = 1;
  for (int i = 0; i < 300; ++i) {
    const WorkspaceTrace trace = random_trace(random, pick(random, 0, 80));
    const Placement placement = place_greedy(trace);
    ASSERT_EQ(check_placement(trace, placement), "") << "case " << i;
    ASSERT_TRUE(is_sound(trace, placement)) << "case " << i;
    const std::int64_t bound = live_bytes_bound(trace);
    ASSERT_GE(placement.bytes, bound) << "case " << i;
    if (bound > 0)
      worst = std::max(worst, static_cast<double>(placement.bytes) / static_cast<double>(bound));
  }
  EXPECT_LT(worst, 1.5);
}

TEST(PlaceGreedy, IsTheSameEveryTime) {
  Random random(62);
  for (int i = 0; i < 50; ++i) {
    const WorkspaceTrace trace = random_trace(random, 60);
    const Placement a = place_greedy(trace), b = place_greedy(WorkspaceTrace(trace));
    ASSERT_EQ(a.offsets, b.offsets);
    ASSERT_EQ(a.bytes, b.bytes);
  }
}

TEST(PlaceGreedy, SharesWhatIsNotAliveTogether) {
  const WorkspaceTrace trace = {{"a", 1000, 0, 1}, {"b", 1000, 2, 5}, {"c", 300, 3, 4}};
  const Placement placement = place_greedy(trace);
  EXPECT_EQ(placement.offsets, (std::vector<std::int64_t>{0, 0, 1024}));
  EXPECT_EQ(placement.bytes, 1024 + 512);
  EXPECT_EQ(live_bytes_bound(trace), 1024 + 512);
}

TEST(PlaceGreedy, FillsAGapBetweenTwo) {
  // c is placed last; only the hole that b leaves between a and d is large enough and low enough.
  const WorkspaceTrace trace = {
      {"a", 4096, 0, 9}, {"b", 3072, 1, 2}, {"d", 2048, 0, 9}, {"c", 1024, 3, 4}};
  const Placement placement = place_greedy(trace);
  EXPECT_EQ(check_placement(trace, placement), "");
  EXPECT_EQ(placement.offsets[3], 4096);
  EXPECT_EQ(placement.bytes, live_bytes_bound(trace));
}

TEST(PlaceGreedy, NothingTakesNothing) {
  EXPECT_EQ(place_greedy({}).bytes, 0);
  EXPECT_EQ(live_bytes_bound({}), 0);
  EXPECT_EQ(check_placement({}, {}), "");
  const WorkspaceTrace empty = {{"none", 0, 0, 1}};
  EXPECT_EQ(place_greedy(empty).bytes, 0);
}

TEST(PlaceGreedy, SizesPast32Bits) {
  const std::int64_t large = std::int64_t{3} << 32;
  const WorkspaceTrace trace = {{"a", large, 0, 3}, {"b", large + 1, 1, 2}};
  const Placement placement = place_greedy(trace);
  EXPECT_EQ(check_placement(trace, placement), "");
  EXPECT_EQ(placement.bytes, 2 * large + 256);
}

TEST(LiveBytesBound, ReleaseAndRequestAtOneEventDoNotAdd) {
  const WorkspaceTrace trace = {{"a", 512, 0, 2}, {"b", 512, 2, 4}};
  EXPECT_EQ(live_bytes_bound(trace), 512);
}

// A sound placement, then each kind of damage.
class CheckPlacement : public ::testing::Test {
 protected:
  WorkspaceTrace trace_ = {{"a", 1000, 0, 3}, {"b", 500, 1, 2}, {"c", 700, 4, 5}};
  Placement placement_{{0, 1024, 256}, 1536};
  std::string check() const { return check_placement(trace_, placement_); }
  void expect(const std::string& part) const {
    EXPECT_NE(check().find(part), std::string::npos) << check();
    EXPECT_FALSE(is_sound(trace_, placement_));
  }
};

TEST_F(CheckPlacement, PassesASoundOne) { EXPECT_EQ(check(), ""); }

TEST_F(CheckPlacement, SeesAnOverlapFromEitherSide) {
  placement_.offsets[1] = 768;  // b begins in a
  expect("overlap");
  placement_.offsets = {512, 256, 256};  // b reaches into a
  expect("overlap");
  placement_.offsets = {0, 0, 0};
  expect("'a'");
  placement_.offsets = {0, 256, 0};  // b lies within a
  expect("overlap");
}

TEST_F(CheckPlacement, SeesAnOverlapOfOneByte) {
  trace_[0].bytes = 1024;
  EXPECT_EQ(check(), "");
  trace_[0].bytes = 1025;
  expect("overlap");
}

TEST_F(CheckPlacement, SeesMisalignment) {
  placement_.offsets[2] = 260;
  expect("request 2 ('c') at 260 is not aligned");
  placement_.offsets[2] = -256;
  expect("not aligned");
}

TEST_F(CheckPlacement, SeesTheEndOfTheArena) {
  placement_.bytes = 1523;  // b ends at 1524
  expect("past the arena");
}

TEST_F(CheckPlacement, SeesAWrongCount) {
  placement_.offsets.pop_back();
  expect("3 requests but 2 addresses");
  placement_.offsets = {0, 1024, 256, 0};
  expect("3 requests but 4 addresses");
}

TEST_F(CheckPlacement, SeesATensorThatNeverEnds) {
  trace_[1].end = -1;
  EXPECT_NE(check().find("ends before it begins"), std::string::npos) << check();
}

// Any address changed at random: the checker must agree with the definition.
TEST(CheckPlacementRandom, AgreesWithTheDefinition) {
  Random random(63);
  int broken = 0;
  for (int i = 0; i < 2000; ++i) {
    const WorkspaceTrace trace = random_trace(random, pick(random, 1, 15));
    Placement placement = place_greedy(trace);
    std::int64_t& offset = placement.offsets[random.below(trace.size())];
    offset += pick(random, -8, 8) * (random.below(4) == 0 ? 64 : kPlacementAlignment);
    const bool sound = is_sound(trace, placement);
    broken += !sound;
    ASSERT_EQ(check_placement(trace, placement).empty(), sound) << "case " << i;
  }
  EXPECT_GT(broken, 500);
  EXPECT_LT(broken, 1900);
}

}  // namespace
}  // namespace longstride
