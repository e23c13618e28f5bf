// What ranks agree on, on ranks that are threads.
#include "comm/control.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/thread_link.h"

namespace longstride::comm {
namespace {

void run(int ranks, const std::function<void(MessageLink&)>& body) {
  ThreadHub hub(ranks);
  for (const std::exception_ptr& why : run_thread_ranks(hub, {}, body))
    if (why) std::rethrow_exception(why);
}

TEST(Control, GathersAndShares) {
  for (const int ranks : {1, 2, 4})
    run(ranks, [&](MessageLink& link) {
      const auto text = [](int rank) {
        return std::string(static_cast<std::size_t>(rank * 3), 'x');
      };
      const std::vector<std::string> all = gather_texts(link, text(link.rank()));
      ASSERT_EQ(std::ssize(all), ranks);
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text(r));
      for (int root = 0; root < ranks; ++root) {
        EXPECT_EQ(share_text(link, root, text(link.rank())), text(root));
        double value = link.rank() + 0.5;
        share(link, root, value);
        EXPECT_EQ(value, root + 0.5);
      }
      EXPECT_EQ(largest(link, 0), 0);
      EXPECT_EQ(largest(link, link.rank() == ranks - 1 ? 15 : 0), 15);
      EXPECT_EQ(link.counters().tensors_sent(), 0);
      EXPECT_EQ(link.counters().all_sent() > 0, ranks > 1);
    });
}

// Ranks pass points in an order of their own, one of them is asked to stop at one of them.
TEST(Control, AllStopAtTheSamePoint) {
  for (const int lag : {1, 3, 8})
    for (const int asked : {0, 2}) {
      std::vector<int> stopped(3, -1), signals(3, 0);
      run(3, [&](MessageLink& link) {
        const auto rank = static_cast<std::size_t>(link.rank());
        StopVotes votes(link, lag);
        for (int point = 0; point < 40 && stopped[rank] < 0; ++point) {
          if (point % 3 == link.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          signals[rank] = votes.pass(link.rank() == asked && point >= 5 ? 15 : 0);
          if (signals[rank] != 0) stopped[rank] = point;
        }
        EXPECT_EQ(votes.finish(), 15);  // those of the points on the way
      });
      EXPECT_EQ(stopped, std::vector<int>(3, 5 + lag));
      EXPECT_EQ(signals, std::vector<int>(3, 15));
    }
}

TEST(Control, VotesOfTheLastPointsAreNotLost) {
  run(2, [&](MessageLink& link) {
    StopVotes votes(link, 8);
    for (int point = 0; point < 3; ++point)
      EXPECT_EQ(votes.pass(link.rank() == 1 && point == 2 ? 2 : 0), 0);
    EXPECT_EQ(votes.finish(), 2);
    EXPECT_EQ(votes.finish(), 0);
  });
}

// Receives that were started before a vote do not take it for their message.
TEST(Control, VotesPassByReceivesThatWait) {
  run(2, [&](MessageLink& link) {
    const int other = 1 - link.rank();
    StopVotes votes(link, 2);
    int stopped = -1;
    std::vector<std::byte> coming(5000), leaving(5000);
    Ticket receiving = link.receive(other, coming);
    for (int point = 0; point < 20 && stopped < 0; ++point) {
      if (votes.pass(link.rank() == 1 && point >= 7 ? 10 : 0) != 0) {
        stopped = point;
        continue;
      }
      leaving.assign(5000, std::byte(point));
      const Ticket sending = link.send(other, leaving);
      link.wait(receiving);
      EXPECT_EQ(coming.back(), std::byte(point));
      receiving = link.receive(other, coming);
      link.wait(sending);
    }
    EXPECT_EQ(stopped, 9);
    EXPECT_EQ(votes.finish(), 10);
    EXPECT_TRUE(link.withdraw(receiving));
    votes.pass(0);  // nobody sends anything else before all have taken theirs back
    EXPECT_EQ(votes.finish(), 0);
    EXPECT_EQ(largest(link, link.rank()), 1);
  });
}

// A rank that is ahead goes on until it is `lag` points ahead.
TEST(Control, ARankMayBeAhead) {
  std::atomic<int> ahead{0};
  run(2, [&](MessageLink& link) {
    StopVotes votes(link, 4);
    if (link.rank() == 0)
      for (int point = 0; point < 4; ++point, ++ahead) votes.pass(0);
    else
      while (ahead < 4) std::this_thread::yield();
    if (link.rank() == 1)
      for (int point = 0; point < 4; ++point) votes.pass(0);
    EXPECT_EQ(votes.finish(), 0);
  });
}

}  // namespace
}  // namespace longstride::comm
