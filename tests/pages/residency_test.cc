#include "pages/residency.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longstride {
namespace {

// Two layers, three chunks: forward chunk by chunk, then backward; everything is visited.
std::vector<BlockUse> dense_uses() {
  std::vector<BlockUse> uses;
  for (const std::int64_t chunk : {0, 1, 2})
    for (const std::int64_t layer : {0, 1}) uses.push_back({layer, 0, chunk});
  for (const std::int64_t chunk : {2, 1, 0})
    for (const std::int64_t layer : {1, 0}) uses.push_back({layer, 0, chunk});
  return uses;
}

TEST(Residency, WhatIsNeededLastLeavesFirst) {
  Residency r(2, 3);
  r.begin(dense_uses());
  EXPECT_EQ(r.next_use({1, 0}), 1);
  EXPECT_EQ(r.next_use({0, 2}), 4);
  for (std::int64_t number : {0, 1}) {
    r.arrive({number, 0});
    r.pin(number);
    r.unpin(number);
  }
  r.arrive({0, 1});
  r.pin(2);  // layer 0 of chunk 1 is at work, and used again at 4; layer 1 at 3
  EXPECT_EQ(r.victim(2), (Block{1, 0})) << "what is computed on stays";
  EXPECT_FALSE(r.victim(3).has_value()) << "nor does it leave for something needed later";
  r.unpin(2);
  EXPECT_EQ(r.victim(3)->layer, 0);
}

TEST(Residency, ABlockThatIsNeverUsedAgainGoesBeforeAll) {
  Residency r(2, 1);
  const std::vector<BlockUse> uses = {{0, 0, 0}, {1, 0, 0}, {0, 0, 0}};
  r.begin(uses);
  r.arrive({0, 0});
  r.arrive({1, 0});
  for (std::int64_t number : {0, 1}) {
    r.pin(number);
    r.unpin(number);
  }
  EXPECT_EQ(r.next_use({1, 0}), Residency::kNever);
  EXPECT_EQ(r.victim(2), (Block{1, 0}));
}

// A window leaves its first chunks behind until the backward pass.
TEST(Residency, ChunksBehindTheWindowGoBeforeThoseInIt) {
  Residency r(2, 4);
  // Layer 0 sees two chunks at a time, layer 1 all; then backward.
  const std::vector<BlockUse> uses = {{0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {1, 0, 1}, {0, 1, 2},
                                      {1, 0, 2}, {0, 1, 2}, {1, 0, 2}, {0, 0, 1}, {1, 0, 1}};
  r.begin(uses);
  for (const std::int64_t chunk : {0, 1, 2})
    for (const std::int64_t layer : {0, 1}) r.arrive({layer, chunk});
  for (std::int64_t number = 0; number < 5; ++number) {
    r.pin(number);
    r.unpin(number);
  }
  EXPECT_EQ(r.victim(5), (Block{0, 0}));
  r.leave({0, 0});
  EXPECT_EQ(r.victim(5)->layer, 0);
}

TEST(Residency, ABrokenOrderIsNoticed) {
  Residency r(1, 2);
  const std::vector<BlockUse> uses = {{0, 0, 0}, {0, 0, 1}};
  r.begin(uses);
  EXPECT_THROW(r.pin(1), InternalError);
  EXPECT_THROW(r.unpin(0), InternalError);
  r.arrive({0, 0});
  EXPECT_THROW(r.arrive({0, 0}), InternalError);
  EXPECT_THROW(r.leave({0, 1}), InternalError);
  EXPECT_THROW(r.begin(uses), InternalError);
  r.leave({0, 0});
  EXPECT_NO_THROW(r.begin(uses));
}

}  // namespace
}  // namespace longstride
