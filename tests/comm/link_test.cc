// All operations of a link, on ranks that are threads.
#include "comm/link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"
#include "comm/control.h"
#include "comm/thread_link.h"

namespace longstride::comm {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(int from, int to, std::int64_t bytes) {
  Bytes all(static_cast<std::size_t>(bytes));
  std::mt19937 random(static_cast<unsigned>(from * 1000 + to * 10 + 7));
  for (std::byte& b : all) b = static_cast<std::byte>(random());
  return all;
}

void expect_no_throw(const std::vector<std::exception_ptr>& thrown) {
  for (const std::exception_ptr& why : thrown) {
    if (why == nullptr) continue;
    try {
      std::rethrow_exception(why);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

LinkOptions small_parts() {
  LinkOptions options;
  options.timeout_seconds = 30;
  options.part_bytes = 3000;  // so that messages have several, the last one short
  return options;
}

// A barrier that passes by receives that were started before it.
void wait_for_all(MessageLink& link) {
  StopVotes votes(link, 1);
  votes.pass(0);
  votes.finish();
}

class LinkOfRanks : public testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(MessageLink&)>& body) {
    ThreadHub hub(GetParam());
    expect_no_throw(run_thread_ranks(hub, small_parts(), body));
    EXPECT_FALSE(hub.aborted());
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, LinkOfRanks, testing::Values(1, 2, 3, 4));

constexpr std::int64_t kSizes[] = {0, 1, 7, 2048, 2049, 3000, 6000, 100003};

TEST_P(LinkOfRanks, SendsAndReceives) {
  run([](MessageLink& link) {
    const int n = link.size(), next = (link.rank() + 1) % n, previous = (link.rank() + n - 1) % n;
    for (const std::int64_t bytes : kSizes) {
      const Bytes sent = pattern(link.rank(), next, bytes);
      Bytes got(sent.size());
      const Ticket sending = link.send(next, sent), receiving = link.receive(previous, got);
      link.wait(receiving);
      link.wait(sending);
      EXPECT_TRUE(link.done(sending) && link.done(receiving));
      EXPECT_EQ(got, pattern(previous, link.rank(), bytes)) << bytes;
    }
  });
}

TEST_P(LinkOfRanks, AllToAllOfDifferentSizes) {
  run([](MessageLink& link) {
    const int n = link.size(), me = link.rank();
    for (const std::int64_t bytes : kSizes) {
      std::vector<Bytes> to, from;
      std::vector<SendBuffer> sends;
      std::vector<ReceiveBuffer> receives;
      for (int r = 0; r < n; ++r) {
        to.push_back(pattern(me, r, bytes * (me + 2 * r)));
        from.emplace_back(static_cast<std::size_t>(bytes * (r + 2 * me)));
      }
      for (int r = 0; r < n; ++r) {
        sends.emplace_back(to[static_cast<std::size_t>(r)]);
        receives.emplace_back(from[static_cast<std::size_t>(r)]);
      }
      link.all_to_all(sends, receives);
      for (int r = 0; r < n; ++r)
        EXPECT_EQ(from[static_cast<std::size_t>(r)], pattern(r, me, bytes * (r + 2 * me)));
    }
  });
}

TEST_P(LinkOfRanks, AllGatherAndBroadcastFromEveryRoot) {
  run([](MessageLink& link) {
    const int n = link.size(), me = link.rank();
    for (const std::int64_t bytes : kSizes) {
      std::vector<Bytes> from;
      for (int r = 0; r < n; ++r) from.emplace_back(static_cast<std::size_t>(bytes * r));
      const std::vector<ReceiveBuffer> receives(from.begin(), from.end());
      link.all_gather(pattern(me, 0, bytes * me), receives);
      for (int r = 0; r < n; ++r)
        EXPECT_EQ(from[static_cast<std::size_t>(r)], pattern(r, 0, bytes * r));
      for (int root = 0; root < n; ++root) {
        Bytes value = me == root ? pattern(root, 9, bytes) : Bytes(static_cast<std::size_t>(bytes));
        link.broadcast(root, value);
        EXPECT_EQ(value, pattern(root, 9, bytes));
      }
    }
  });
}

TEST_P(LinkOfRanks, BarrierWaitsForTheLast) {
  std::atomic<int> came = 0;
  run([&](MessageLink& link) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * link.rank()));
    ++came;
    link.barrier();
    EXPECT_EQ(came.load(), link.size());
  });
}

// Every pair exchanges messages of random sizes; each rank posts its own in a random order of
// peers, in order within a pair, and waits for them in another.
TEST_P(LinkOfRanks, KeepsTheOrderOfAPairInRandomSchedules) {
  constexpr int kMessages = 40;
  const auto size_of = [](int from, int to, int message) {
    std::mt19937 random(static_cast<unsigned>(from * 64 + to * 8 + message * 4096));
    return static_cast<std::int64_t>(random() % 3 == 0 ? random() % 20000 : random() % 50);
  };
  run([&](MessageLink& link) {
    const int n = link.size(), me = link.rank();
    std::mt19937 random(static_cast<unsigned>(me + 17 * n));
    std::vector<int> sent(static_cast<std::size_t>(n), 0), received = sent;
    std::deque<Bytes> buffers;
    std::vector<Ticket> tickets;
    std::vector<std::pair<const Bytes*, Bytes>> expected;
    for (int left = 2 * n * kMessages; left > 0;) {
      const auto peer = static_cast<int>(random() % static_cast<unsigned>(n));
      const bool sends = random() % 2 == 0;
      int& count = (sends ? sent : received)[static_cast<std::size_t>(peer)];
      if (count == kMessages) continue;
      --left;
      if (sends) {
        buffers.push_back(pattern(me + 100 * count, peer, size_of(me, peer, count)));
        tickets.push_back(link.send(peer, buffers.back()));
      } else {
        buffers.emplace_back(static_cast<std::size_t>(size_of(peer, me, count)));
        expected.emplace_back(&buffers.back(),
                              pattern(peer + 100 * count, me, size_of(peer, me, count)));
        tickets.push_back(link.receive(peer, buffers.back()));
      }
      ++count;
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
    std::shuffle(tickets.begin(), tickets.end(), random);
    for (const Ticket ticket : tickets) link.wait(ticket);
    for (const auto& [got, wanted] : expected) EXPECT_EQ(*got, wanted);
  });
}

TEST_P(LinkOfRanks, CountsBytesByKind) {
  run([](MessageLink& link) {
    const std::int64_t others = link.size() - 1;
    Bytes value(5000), mine(10);
    link.broadcast(0, value);
    std::vector<Bytes> from(static_cast<std::size_t>(link.size()), Bytes(10));
    link.all_gather(mine, std::vector<ReceiveBuffer>(from.begin(), from.end()));
    link.wait(link.send(link.rank(), mine));  // to itself: not counted
    link.wait(link.receive(link.rank(), mine));
    const ByteCounters counters = link.counters();
    const auto at = [](Traffic traffic) { return static_cast<std::size_t>(traffic); };
    EXPECT_EQ(counters.sent[at(Traffic::kAllGather)], 10 * others);
    EXPECT_EQ(counters.received[at(Traffic::kAllGather)], 10 * others);
    EXPECT_EQ(counters.received[at(Traffic::kBroadcast)], link.rank() == 0 ? 0 : 5000);
    EXPECT_EQ(counters.sent[at(Traffic::kMessage)], 0);
    EXPECT_EQ(counters.all_received(), 10 * others + (link.rank() == 0 ? 0 : 5000));
  });
}

// A receive that was started for a message that never comes is as if it had not been.
TEST_P(LinkOfRanks, AReceiveIsWithdrawn) {
  run([](MessageLink& link) {
    const int n = link.size(), next = (link.rank() + 1) % n, previous = (link.rank() + n - 1) % n;
    for (const std::int64_t bytes : kSizes) {
      Bytes untouched(static_cast<std::size_t>(bytes), std::byte{77});
      const Bytes before = untouched, sent = pattern(link.rank(), next, bytes);
      Bytes got(sent.size());
      // Two that are taken back, before and after one that comes.
      const Ticket first = link.receive(previous, untouched);
      const Ticket wanted = link.receive(previous, got);
      const Ticket last = link.receive(previous, untouched);
      EXPECT_TRUE(link.withdraw(first));
      EXPECT_TRUE(link.done(first));
      // All have taken theirs back before anything is sent, or it would be taken for it.
      wait_for_all(link);
      const Ticket sending = link.send(next, sent);
      link.wait(wanted);
      EXPECT_TRUE(link.withdraw(last));
      EXPECT_FALSE(link.withdraw(last));
      EXPECT_FALSE(link.withdraw(wanted));
      link.wait(sending);
      EXPECT_EQ(got, pattern(previous, link.rank(), bytes)) << bytes;
      EXPECT_EQ(untouched, before);
      wait_for_all(link);
    }
  });
}

// Votes and other messages may be received in another order than they were sent.
TEST_P(LinkOfRanks, VotesHaveAnOrderOfTheirOwn) {
  run([](MessageLink& link) {
    const int n = link.size(), next = (link.rank() + 1) % n, previous = (link.rank() + n - 1) % n;
    for (const std::int64_t bytes : kSizes) {
      std::vector<Ticket> tickets;
      std::vector<Bytes> sent, got(4, Bytes(static_cast<std::size_t>(bytes)));
      std::array<int, 4> votes{}, heard{};
      for (int i = 0; i < 4; ++i) {
        sent.push_back(pattern(link.rank() + 100 * i, next, bytes));
        votes.at(static_cast<std::size_t>(i)) = 10 * i + link.rank();
      }
      for (std::size_t i = 0; i < 4; ++i) {
        tickets.push_back(link.send(next, sent[i]));
        tickets.push_back(link.start_send(next, send_buffer(votes.at(i)), Traffic::kVote));
      }
      // All votes first, while the messages before them wait.
      for (int& one : heard) {
        const Ticket ticket = link.start_receive(previous, receive_buffer(one), Traffic::kVote);
        link.wait(ticket);
      }
      for (Bytes& one : got) link.wait(link.receive(previous, one));
      for (const Ticket ticket : tickets) link.wait(ticket);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(heard.at(static_cast<std::size_t>(i)), 10 * i + previous);
        EXPECT_EQ(got[static_cast<std::size_t>(i)],
                  pattern(previous + 100 * i, link.rank(), bytes));
      }
    }
    EXPECT_EQ(link.counters().tensors_sent(),
              link.counters().sent[static_cast<std::size_t>(Traffic::kMessage)]);
  });
}

TEST(Link, AVoteIsSmall) {
  ThreadHub hub(1);
  const auto thrown = run_thread_ranks(hub, small_parts(), [](MessageLink& link) {
    const Bytes large(kMostVoteBytes + 1);
    link.wait(link.start_send(0, large, Traffic::kVote));
  });
  EXPECT_THROW(std::rethrow_exception(thrown.at(0)), InternalError);
}

TEST(Link, CountsTheSecondsOfAWait) {
  ThreadHub hub(2);
  expect_no_throw(run_thread_ranks(hub, small_parts(), [](MessageLink& link) {
    int value = 0;
    if (link.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      link.wait(link.send(1, send_buffer(value)));
    } else {
      link.wait(link.receive(0, receive_buffer(value)));
      EXPECT_GT(link.counters().seconds_waited, 0.1);
    }
  }));
}

TEST(Link, RefusesDeviceMemoryAndRanksThatDoNotExist) {
  ThreadHub hub(1);
  expect_no_throw(run_thread_ranks(hub, small_parts(), [](MessageLink& link) {
    Bytes bytes(4);
    EXPECT_THROW(link.send(0, {bytes.data(), 4, MemoryKind::kDevice}), InternalError);
    EXPECT_THROW(link.send(1, bytes), InternalError);
    EXPECT_THROW(link.receive(-1, bytes), InternalError);
    EXPECT_THROW(link.wait({99}), InternalError);
  }));
}

// Its first and last bytes, and those around 2^31 and 2^32, come to their places. The source is
// memory that is not there but for the pages that are written.
TEST(Link, SlowMessageBeyondFourGiB) {
  constexpr std::int64_t kBytes = (std::int64_t{1} << 32) + 12345;
  const std::vector<std::int64_t> places = {0, (std::int64_t{1} << 31) - 1, std::int64_t{1} << 31,
                                            std::int64_t{1} << 32, kBytes - 1};
  ThreadHub hub(2);
  LinkOptions options;
  options.timeout_seconds = 60;
  expect_no_throw(run_thread_ranks(hub, options, [&](MessageLink& link) {
    auto* const memory = static_cast<std::byte*>(
        ::mmap(nullptr, static_cast<std::size_t>(kBytes), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    if (link.rank() == 0) {
      for (std::size_t i = 0; i < places.size(); ++i) memory[places[i]] = std::byte(i + 1);
      link.wait(link.send(1, {memory, kBytes}));
      EXPECT_EQ(link.counters().all_sent(), kBytes);
    } else {
      link.wait(link.receive(0, {memory, kBytes}));
      for (std::size_t i = 0; i < places.size(); ++i)
        EXPECT_EQ(memory[places[i]], std::byte(i + 1));
    }
    link.barrier();
    ::munmap(memory, static_cast<std::size_t>(kBytes));
  }));
}

// Several ranks on two hosts.
TEST(Link, CountsTheRanksOfAHost) {
  ThreadHub hub(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      LinkOptions options = small_parts();
      options.host = rank == 1 ? "one" : "two";
      MessageLink link(hub.wire(rank), options);
      EXPECT_EQ(link.host(1), "one");
      EXPECT_EQ(link.host(2), "two");
      EXPECT_EQ(link.local_rank(), rank == 2 ? 1 : 0);
      EXPECT_EQ(link.local_size(), rank == 1 ? 1 : 2);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace longstride::comm
