// Cases worked out by hand from the rules of PyTorch's allocator.
#include "plan/allocator_model.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

TEST(AllocatorModel, SmallRequestsShareASegmentOf2MiB) {
  AllocatorModel model;
  const auto a = model.allocate(1), b = model.allocate(513);
  EXPECT_EQ(model.reserved(), 2 * kMiB);
  EXPECT_EQ(model.allocated(), 512 + 1024);
  const auto c = model.allocate(kMiB);
  EXPECT_EQ(model.reserved(), 2 * kMiB);
  const auto d = model.allocate(kMiB);  // just under 1 MiB is left
  EXPECT_EQ(model.reserved(), 4 * kMiB);
  for (const auto block : {a, b, c, d}) model.free(block);
  EXPECT_EQ(model.allocated(), 0);
  EXPECT_EQ(model.reserved(), 4 * kMiB);
  EXPECT_EQ(model.peak_allocated(), 2 * kMiB + 512 + 1024);
}

TEST(AllocatorModel, SegmentsOfLargeRequests) {
  AllocatorModel model;
  model.allocate(kMiB + 1);  // of 20 MiB
  EXPECT_EQ(model.reserved(), 20 * kMiB);
  model.allocate(9 * kMiB);
  model.allocate(9 * kMiB - 512);  // exactly the rest
  EXPECT_EQ(model.reserved(), 20 * kMiB);
  model.allocate(10 * kMiB);  // its own size
  EXPECT_EQ(model.reserved(), 30 * kMiB);
  model.allocate(11 * kMiB);  // rounded to 2 MiB
  EXPECT_EQ(model.reserved(), 42 * kMiB);
}

TEST(AllocatorModel, KeepsARestOf1MiBWithTheLargeBlock) {
  AllocatorModel model;
  const auto a = model.allocate(20 * kMiB);
  model.free(a);
  const auto b = model.allocate(19 * kMiB);  // the rest is not more than 1 MiB
  EXPECT_EQ(model.allocated(), 20 * kMiB);
  model.free(b);
  model.allocate(19 * kMiB - 512);  // now it is
  EXPECT_EQ(model.allocated(), 19 * kMiB - 512);
  EXPECT_EQ(model.reserved(), 20 * kMiB);
}

TEST(AllocatorModel, TakesTheSmallestBlockThatFits) {
  AllocatorModel model;
  const auto a = model.allocate(40 * kMiB), b = model.allocate(30 * kMiB),
             c = model.allocate(50 * kMiB);
  for (const auto block : {a, b, c}) model.free(block);
  model.allocate(28 * kMiB);  // of b's
  model.allocate(40 * kMiB);
  model.allocate(50 * kMiB);
  EXPECT_EQ(model.reserved(), 120 * kMiB);
}

TEST(AllocatorModel, MergesFreeNeighboursOfASegmentOnly) {
  AllocatorModel model;
  model.free(model.allocate(60 * kMiB));
  const auto a = model.allocate(20 * kMiB), b = model.allocate(20 * kMiB),
             c = model.allocate(20 * kMiB);
  EXPECT_EQ(model.reserved(), 60 * kMiB);
  model.free(a);
  model.free(c);
  const auto d = model.allocate(40 * kMiB);  // b lies between the two
  EXPECT_EQ(model.reserved(), 100 * kMiB);
  model.free(b);
  model.allocate(60 * kMiB);
  EXPECT_EQ(model.reserved(), 100 * kMiB);
  model.free(d);
  model.allocate(60 * kMiB);  // other segments do not merge
  EXPECT_EQ(model.reserved(), 160 * kMiB);
}

TEST(SimulateAllocator, FragmentationOfAGrowingTensor) {
  // 100 MiB are freed, then 60 stay in them and 100 are needed at once with those.
  const WorkspaceTrace first = {{"a", 100 * kMiB, 0, 1}},
                       second = {{"b", 60 * kMiB, 0, 3}, {"c", 100 * kMiB, 1, 2}};
  const std::vector<const WorkspaceTrace*> step = {&first, &second, &first};
  const AllocatorUse use = simulate_allocator(step);
  EXPECT_EQ(use.allocated, 160 * kMiB);
  EXPECT_EQ(use.reserved, 200 * kMiB);
  EXPECT_DOUBLE_EQ(use.fragmentation(), 0.2);
  EXPECT_EQ(simulate_allocator(std::span<const WorkspaceTrace* const>()).fragmentation(), 0);
}

TEST(SimulateAllocator, LaterStepsMayReserveMore) {
  // In the first step b gets a segment of its own. In the next one, a takes that one with room to
  // spare only if it fits best.
  const WorkspaceTrace a = {{"a", 30 * kMiB, 0, 3}, {"b", 40 * kMiB, 1, 2}},
                       b = {{"c", 36 * kMiB, 0, 3}, {"d", 40 * kMiB, 1, 2}};
  // a: 30 + 40. b: c takes the 40 of before, d needs another 40. Nothing grows after that.
  const std::vector<const WorkspaceTrace*> step = {&a, &b};
  EXPECT_EQ(simulate_allocator(step).reserved, 110 * kMiB);
}

}  // namespace
}  // namespace longstride
