#include "pages/residency.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longstride {
namespace {

// Two layers, three chunks: forward chunk by chunk, then backward; everything is visited.
std::vector<std::vector<BlockUse>> dense_uses() {
  std::vector<std::vector<BlockUse>> uses(2);
  std::int64_t position = 0;
  for (const std::int64_t chunk : {0, 1, 2})
    for (std::vector<BlockUse>& layer : uses) layer.push_back({position++, 0, chunk});
  for (const std::int64_t chunk : {2, 1, 0})
    for (const std::size_t layer : {1u, 0u}) uses[layer].push_back({position++, 0, chunk});
  return uses;
}

TEST(Residency, WhatIsNeededLastLeavesFirst) {
  Residency r(2, 10);
  r.begin(dense_uses());
  r.arrive({0, 0}, 2);
  r.arrive({1, 0}, 2);
  r.arrive({0, 1}, 2);
  EXPECT_EQ(r.free_pages(), 4);
  // After layer 0 of chunk 1 (position 2), layer 1 comes next: layer 0 can wait.
  EXPECT_EQ(r.victim(2, 1, {3, 0, 1}), (Block{0, 0}));
  // Layer 0 itself is at work: only layer 1 can go, though it is needed soon.
  EXPECT_EQ(r.victim(2, 0, {2, 0, 1}), (Block{1, 0}));
  r.leave({1, 0}, 2);
  EXPECT_FALSE(r.victim(2, 0, {2, 0, 1}).has_value());
}

TEST(Residency, ABlockThatIsNeverUsedAgainGoesBeforeAll) {
  Residency r(2, 10);
  std::vector<std::vector<BlockUse>> uses = {{{0, 0, 0}, {5, 0, 0}}, {{1, 0, 0}}};
  r.begin(uses);
  r.arrive({0, 0}, 1);
  r.arrive({1, 0}, 1);
  EXPECT_EQ(r.victim(1, -1, {}), (Block{1, 0}));
}

// A window leaves its first chunks behind until the backward pass.
TEST(Residency, ChunksBehindTheWindowGoBeforeThoseInIt) {
  Residency r(2, 10);
  // Layer 0 sees two chunks at a time, layer 1 all; positions 8 and on are backward.
  r.begin({{{0, 0, 0}, {2, 0, 1}, {4, 1, 2}, {6, 2, 3}, {9, 2, 3}, {11, 1, 2}, {13, 0, 1}},
           {{1, 0, 0}, {3, 0, 1}, {5, 0, 2}, {7, 0, 3}, {8, 0, 3}}});
  for (const std::int64_t chunk : {0, 1, 2}) {
    r.arrive({0, chunk}, 1);
    r.arrive({1, chunk}, 1);
  }
  // At position 4 chunk 0 of layer 0 is next needed at 13, layer 1 at 5.
  EXPECT_EQ(r.victim(4, 0, {4, 1, 2}), (Block{0, 0}));
  r.leave({0, 0}, 1);
  EXPECT_EQ(r.victim(4, 0, {4, 1, 2}), (Block{1, 0}));
}

TEST(Residency, MoreThanThereIsRoomForIsABrokenInvariant) {
  Residency r(1, 3);
  r.arrive({0, 0}, 2);
  EXPECT_THROW(r.arrive({0, 1}, 2), InternalError);
  EXPECT_THROW(r.leave({0, 1}, 1), InternalError);
  EXPECT_THROW(r.begin({{}}), InternalError);
  r.leave({0, 0}, 2);
  EXPECT_NO_THROW(r.begin({{}}));
}

}  // namespace
}  // namespace longstride
