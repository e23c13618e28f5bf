#include "comm/peers.h"

#include <gtest/gtest.h>

namespace longstride::comm {
namespace {

using std::chrono::seconds;

const Time kStart = Time{} + seconds(1000);

TEST(Peers, BlamesTheEndOfTheChain) {
  Peers peers(0, 4, kStart);
  const auto beat_all = [&](Time now) {
    for (int rank = 1; rank < 4; ++rank) peers.hear(rank, now);
    peers.beat(1, 5, 2, now);
    peers.beat(2, 5, 3, now);
    peers.beat(3, 5, -1, now);
  };
  for (int s = 0; s <= 10; ++s) {
    beat_all(kStart + seconds(s));
    EXPECT_FALSE(peers.blame(1, seconds(10), kStart + seconds(s)).has_value() && s < 10) << s;
  }
  const auto blamed = peers.blame(1, seconds(10), kStart + seconds(10));
  ASSERT_TRUE(blamed.has_value());
  EXPECT_EQ(blamed->rank, 3);
  EXPECT_EQ(blamed->why, "made no progress for 10 s");
  // A sign of progress at the end of the chain, and nobody is.
  peers.beat(3, 6, -1, kStart + seconds(10));
  EXPECT_FALSE(peers.blame(1, seconds(10), kStart + seconds(19)).has_value());
}

TEST(Peers, BlamesWhoIsSilentBeforeWhoWaits) {
  Peers peers(0, 3, kStart);
  peers.beat(1, 5, 2, kStart);
  peers.hear(1, kStart + seconds(12));
  const auto blamed = peers.blame(1, seconds(10), kStart + seconds(12));
  ASSERT_TRUE(blamed.has_value());
  EXPECT_EQ(blamed->rank, 2);
  EXPECT_EQ(blamed->why, "has not been heard of for 12 s");
}

// Rank 1 was stopped while it waited for rank 0, which waits for it since.
TEST(Peers, WhatASilentRankSaidLastIsNoCircle) {
  Peers peers(0, 2, kStart);
  peers.beat(1, 5, 0, kStart);
  peers.hear(1, kStart + seconds(1));
  EXPECT_FALSE(peers.blame(1, seconds(10), kStart + seconds(10)).has_value());
  const auto blamed = peers.blame(1, seconds(10), kStart + seconds(11));
  ASSERT_TRUE(blamed.has_value());
  EXPECT_EQ(blamed->why, "has not been heard of for 10 s");
  // Alive, it is one.
  peers.hear(1, kStart + seconds(11));
  EXPECT_NE(peers.blame(1, seconds(10), kStart + seconds(11))->why.find("wait for it"),
            std::string::npos);
}

// Rank 1 has waited for long, and rank 0 has just sent it something and waits for the answer.
TEST(Peers, WhoHasJustBegunToWaitIsInNoCircle) {
  Peers peers(0, 2, kStart);
  peers.beat(0, 7, -1, kStart);
  peers.beat(1, 5, 0, kStart);
  peers.beat(0, 8, 1, kStart + seconds(20));
  peers.hear(1, kStart + seconds(20));
  EXPECT_FALSE(peers.blame(1, seconds(10), kStart + seconds(20)).has_value());
  peers.hear(1, kStart + seconds(30));
  EXPECT_TRUE(peers.blame(1, seconds(10), kStart + seconds(30)).has_value());
}

TEST(Peers, ForgivesTheTimeInWhichItWasStoppedItself) {
  Peers peers(0, 2, kStart);
  EXPECT_TRUE(peers.blame(1, seconds(10), kStart + seconds(50)).has_value());
  peers.forgive(seconds(45));
  EXPECT_FALSE(peers.blame(1, seconds(10), kStart + seconds(50)).has_value());
}

TEST(Peers, WhoStopsWaitingHasTime) {
  Peers peers(0, 2, kStart);
  peers.beat(1, 5, 0, kStart);
  peers.hear(1, kStart + seconds(30));
  peers.beat(1, 5, -1, kStart + seconds(30));
  EXPECT_FALSE(peers.blame(1, seconds(10), kStart + seconds(39)).has_value());
  peers.hear(1, kStart + seconds(40));
  EXPECT_TRUE(peers.blame(1, seconds(10), kStart + seconds(40)).has_value());
}

TEST(Peers, TheLowestThatIsAliveTells) {
  Peers peers(2, 4, kStart);
  const Time now = kStart + seconds(5);
  EXPECT_EQ(peers.lowest_alive(seconds(2), now), 2);
  peers.hear(1, now);
  EXPECT_EQ(peers.lowest_alive(seconds(2), now), 1);
  peers.hear(0, now);
  EXPECT_EQ(peers.lowest_alive(seconds(2), now), 0);
  peers.at(0).left = true;
  EXPECT_EQ(peers.lowest_alive(seconds(2), now), 1);
}

}  // namespace
}  // namespace longstride::comm
