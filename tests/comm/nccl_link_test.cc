// Links over NCCL, by its strict twin, on ranks that are threads. Device memory is host memory.
#include "comm/nccl_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"
#include "comm/control.h"
#include "comm/link_check.h"
#include "comm/sub_link.h"
#include "tests/comm/nccl_ranks.h"

namespace longstride::comm {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

Bytes drawn(int from, int to, std::int64_t bytes) {
  Bytes all(static_cast<std::size_t>(bytes));
  std::mt19937 random(static_cast<unsigned>(from * 1000 + to * 10 + 3));
  for (std::byte& b : all) b = static_cast<std::byte>(random());
  return all;
}
SendBuffer on_device(const Bytes& bytes) {
  return {bytes.data(), std::ssize(bytes), MemoryKind::kDevice};
}
ReceiveBuffer on_device(Bytes& bytes) {
  return {bytes.data(), std::ssize(bytes), MemoryKind::kDevice};
}
LinkOptions patient(double timeout = 30) {
  LinkOptions options;
  options.timeout_seconds = timeout;
  options.ending_seconds = timeout < 2 ? 0.3 : 2;
  options.host = "node7";
  return options;
}
void expect_nothing_thrown(const std::vector<std::exception_ptr>& thrown) {
  for (const std::exception_ptr& why : thrown) EXPECT_EQ(what_was_thrown(why), "nothing");
  EXPECT_STREQ(twin().violations(), "");
}
void expect_thrown(const std::exception_ptr& why, const std::string& type,
                   const std::string& part) {
  const std::string text = what_was_thrown(why);
  EXPECT_TRUE(text.starts_with(type) && text.find(part) != std::string::npos)
      << "expected " << type << " with '" << part << "', got " << text;
}

constexpr std::int64_t kNcclSizes[] = {0, 1, 4097, 3 << 20};

class NcclLinkOfRanks : public testing::TestWithParam<int> {
 protected:
  void run(const std::function<void(NcclRank)>& body, const NcclOptions* options = nullptr) {
    expect_nothing_thrown(run_nccl_ranks(GetParam(), patient(), body, options));
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclLinkOfRanks, testing::Values(1, 2, 3, 4));

// All send first, which would never end if messages of both directions shared a communicator.
TEST_P(NcclLinkOfRanks, SendsAndReceives) {
  run([](NcclRank rank) {
    Link& link = rank.link;
    EXPECT_TRUE(link.moves(MemoryKind::kDevice) && link.moves(MemoryKind::kHost));
    const int n = link.size(), me = link.rank();
    for (const std::int64_t bytes : kNcclSizes)
      for (int step = 0; step < n; ++step) {
        const int to = (me + step) % n, from = (me - step + n) % n;
        const Bytes sent = drawn(me, to, bytes), also = drawn(me, to + 50, 5);
        Bytes got(sent.size()), second(5);
        const Ticket tickets[] = {link.send(to, on_device(sent)), link.send(to, on_device(also)),
                                  link.receive(from, on_device(got)),
                                  link.receive(from, on_device(second))};
        for (const Ticket ticket : tickets) link.wait(ticket);
        for (const Ticket ticket : tickets) EXPECT_TRUE(link.done(ticket));
        EXPECT_EQ(got, drawn(from, me, bytes));
        EXPECT_EQ(second, drawn(from, me + 50, 5));
      }
  });
}

TEST_P(NcclLinkOfRanks, AllToAllAllGatherAndBroadcast) {
  const NcclOptions over_lanes{.lanes = all_lanes(GetParam())};
  for (const NcclOptions* options : {static_cast<const NcclOptions*>(nullptr), &over_lanes})
    run(
        [](NcclRank rank) {
          Link& link = rank.link;
          const int n = link.size(), me = link.rank();
          for (const std::int64_t bytes : {0, 1, 5000}) {
            std::vector<Bytes> to, from, gathered;
            std::vector<SendBuffer> sends;
            std::vector<ReceiveBuffer> receives, gathers;
            for (int r = 0; r < n; ++r) {
              to.push_back(drawn(me, r, bytes * (me + 2 * r)));
              from.emplace_back(static_cast<std::size_t>(bytes * (r + 2 * me)));
              gathered.emplace_back(static_cast<std::size_t>(bytes * r));
            }
            for (int r = 0; r < n; ++r) {
              const auto at = static_cast<std::size_t>(r);
              sends.push_back(on_device(std::as_const(to[at])));
              receives.push_back(on_device(from[at]));
              gathers.push_back(on_device(gathered[at]));
            }
            link.all_to_all(sends, receives);
            const Bytes mine = drawn(me, 9, bytes * me);
            link.all_gather(on_device(mine), gathers);
            for (int r = 0; r < n; ++r) {
              EXPECT_EQ(from[static_cast<std::size_t>(r)], drawn(r, me, bytes * (r + 2 * me)));
              EXPECT_EQ(gathered[static_cast<std::size_t>(r)], drawn(r, 9, bytes * r));
            }
            for (int root = 0; root < n; ++root) {
              Bytes value =
                  me == root ? drawn(root, 8, bytes) : Bytes(static_cast<std::size_t>(bytes));
              link.broadcast(root, on_device(value));
              EXPECT_EQ(value, drawn(root, 8, bytes));
            }
            link.barrier();
          }
        },
        options);
}

TEST_P(NcclLinkOfRanks, CountsBytesByKindWithThoseOfTheLinkBeneath) {
  run([](NcclRank rank) {
    Link& link = rank.link;
    const std::int64_t others = link.size() - 1;
    const ByteCounters before = link.counters();
    Bytes value(5000), mine(10);
    std::vector<Bytes> from(static_cast<std::size_t>(link.size()), Bytes(10));
    std::vector<ReceiveBuffer> gathers;
    for (Bytes& one : from) gathers.push_back(on_device(one));
    link.all_gather(on_device(std::as_const(mine)), gathers);
    link.broadcast(0, on_device(value));
    link.broadcast(0, value);  // in host memory
    const ByteCounters after = link.counters();
    const auto grown = [&](Traffic traffic) {
      const auto at = static_cast<std::size_t>(traffic);
      return std::pair(after.sent[at] - before.sent[at], after.received[at] - before.received[at]);
    };
    EXPECT_EQ(grown(Traffic::kAllGather), std::pair(10 * others, 10 * others));
    EXPECT_EQ(grown(Traffic::kBroadcast).second, link.rank() == 0 ? 0 : 10000);
    EXPECT_EQ(grown(Traffic::kMessage), std::pair(std::int64_t{0}, std::int64_t{0}));
  });
}

TEST_P(NcclLinkOfRanks, EveryOperationIsRightAsBenchLinkChecksIt) {
  run([](NcclRank rank) {
    const std::unique_ptr<Device> cpu = make_cpu_device();
    for (const std::int64_t bytes : {0, 1, 4097, 1000003}) {
      check_link(rank.link, bytes, {MemoryKind::kDevice, cpu.get()});
      check_link(rank.link, bytes);  // in host memory, by the link beneath
    }
  });
}

TEST(NcclLink, SomeOfItsRanksAreALinkToo) {
  expect_nothing_thrown(run_nccl_ranks(4, patient(), [](NcclRank rank) {
    const std::unique_ptr<Device> cpu = make_cpu_device();
    const int row = rank.link.rank() / 2, column = rank.link.rank() % 2;
    SubLink pipeline(rank.link, {2 * row, 2 * row + 1});
    SubLink same_stage(rank.link, {column + 2, column});
    for (const std::int64_t bytes : {0, 1, 5000})
      for (Link* link : {static_cast<Link*>(&pipeline), static_cast<Link*>(&same_stage)})
        check_link(*link, bytes, {MemoryKind::kDevice, cpu.get()});
  }));
}

// Random orders of posting, as for links over MPI.
TEST_P(NcclLinkOfRanks, KeepsTheOrderOfAPairInRandomSchedules) {
  constexpr int kMessages = 30;
  run([&](NcclRank rank) {
    Link& link = rank.link;
    const int n = link.size(), me = link.rank();
    std::mt19937 random(static_cast<unsigned>(me + 17 * n));
    std::vector<int> sent(static_cast<std::size_t>(n), 0), received = sent;
    std::deque<Bytes> buffers;
    std::vector<Ticket> tickets;
    std::vector<std::pair<const Bytes*, Bytes>> expected;
    for (int left = 2 * n * kMessages; left > 0;) {
      const auto peer = static_cast<int>(random() % static_cast<unsigned>(n));
      const bool sends = random() % 2 == 0;
      int& number = (sends ? sent : received)[static_cast<std::size_t>(peer)];
      if (number == kMessages) continue;
      --left;
      const int from = sends ? me : peer, to = sends ? peer : me;
      const std::int64_t bytes = (from * 7 + to * 3 + number * 11) % 50 * 40;
      const Bytes content = drawn(from + 100 * number, to, bytes);
      buffers.push_back(sends ? content : Bytes(content.size()));
      if (sends) {
        tickets.push_back(link.send(peer, on_device(std::as_const(buffers.back()))));
      } else {
        expected.emplace_back(&buffers.back(), content);
        tickets.push_back(link.receive(peer, on_device(buffers.back())));
      }
      ++number;
    }
    std::shuffle(tickets.begin(), tickets.end(), random);
    for (const Ticket ticket : tickets) link.wait(ticket);
    for (const auto& [got, wanted] : expected) EXPECT_EQ(*got, wanted);
  });
}

// What the device's stream computes before a send is sent, and after wait_on_stream what came is
// read, though the host waits for neither.
TEST(NcclLink, FollowsTheOrderOfTheDevicesStream) {
  expect_nothing_thrown(run_nccl_ranks(2, patient(), [](NcclRank rank) {
    constexpr int kTurns = 100;  // more than marks
    const int other = 1 - rank.link.rank();
    std::vector<Bytes> sent(kTurns, Bytes(1000)), got(kTurns, Bytes(1000));
    std::vector<Bytes> read(kTurns);
    for (std::size_t i = 0; i < kTurns; ++i) {
      rank.streams.compute([&, i] {
        if (i % 10 == 0) std::this_thread::sleep_for(milliseconds(3));
        std::ranges::copy(drawn(rank.link.rank(), static_cast<int>(i), 1000), sent[i].begin());
      });
      const Ticket sending = rank.link.send(other, on_device(std::as_const(sent[i])));
      rank.link.wait_on_stream(rank.link.receive(other, on_device(got[i])));
      rank.streams.compute([&, i] { read[i] = got[i]; });
      rank.link.wait_on_stream(sending);
      rank.streams.compute([&, i] { std::ranges::fill(sent[i], std::byte{}); });
    }
    rank.streams.finish_computing();
    for (std::size_t i = 0; i < kTurns; ++i)
      EXPECT_EQ(read[i], drawn(other, static_cast<int>(i), 1000)) << i;
  }));
}

TEST(NcclLink, RefusesLanesThatItDoesNotHave) {
  const NcclOptions neighbours{.lanes = {{0, 1}}};
  expect_nothing_thrown(run_nccl_ranks(
      2, patient(),
      [](NcclRank rank) {
        Bytes value(8);
        if (rank.link.rank() == 0) {
          EXPECT_THROW(rank.link.receive(1, on_device(value)), InternalError);
          EXPECT_THROW(rank.link.send(0, on_device(std::as_const(value))), InternalError);
        }
        EXPECT_THROW(rank.link.wait({std::uint64_t{1} << 63 | std::uint64_t{99} << 40 | 1}),
                     InternalError);
      },
      &neighbours));
  EXPECT_EQ(pipeline_lanes(1).size(), 0u);
  EXPECT_EQ(pipeline_lanes(2).size(), 2u);
  EXPECT_EQ(pipeline_lanes(4).size(), 8u);
  // Two pipelines of two stages: both ways in each, and all of a stage with one another.
  const auto grid = pipeline_lanes(2, 2);
  EXPECT_EQ(grid.size(), 4u + 2u * 4u);
  for (const auto& lane : {std::pair(2, 3), std::pair(3, 1), std::pair(0, 0)})
    EXPECT_EQ(std::ranges::count(grid, lane), 1) << lane.first << " to " << lane.second;
  EXPECT_EQ(all_lanes(3).size(), 9u);
}

TEST(NcclLink, AWaitForAMessageToItselfWithOneEndIsNoticed) {
  const auto thrown = run_nccl_ranks(1, patient(), [](NcclRank rank) {
    const Bytes value(8);
    rank.link.wait(rank.link.send(0, on_device(value)));
  });
  expect_thrown(thrown[0], "InternalError", "whose other end was not posted");
}

// Rank 2 never opens NCCL. Its link beneath lives and advances, so the timeout of NCCL's own
// connecting ends it.
TEST(NcclLink, ARankThatNeverConnectsIsNamed) {
  reset_twin();
  ThreadHub hub(3);
  const auto begin = Clock::now();
  const auto thrown = run_thread_ranks(hub, patient(20), [&](MessageLink& host) {
    if (host.rank() == 2) {
      gather_texts(host, std::string(2 * sizeof(nccl::UniqueId), '\0'));  // ids that nobody serves
      while (true) {
        host.progressed();
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
    NcclOptions options;
    options.lanes = pipeline_lanes(3);
    options.timeout_seconds = 0.5;
    const NcclLink link(twin_library(), std::make_unique<TwinStreams>(), host, options);
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(8));
  int told = 0;
  for (const std::size_t rank : {0, 1}) {
    const std::string text = what_was_thrown(thrown[rank]);
    EXPECT_NE(text.find("NCCL did not connect rank"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 2 on node7 within"), std::string::npos) << text;
    told += text.starts_with("Error") ? 1 : 0;
  }
  EXPECT_GE(told, 1);
  EXPECT_TRUE(what_was_thrown(thrown[2]).starts_with("RankFailed"));
  EXPECT_STREQ(twin().violations(), "");
}

// Rank 1 ends by an error while others wait for its messages: by the host, and on the device's
// stream, where no call of the link would notice.
TEST(NcclLink, ARankThatFailsEndsTheMessagesOfAll) {
  const auto begin = Clock::now();
  std::atomic<bool> came_back = false;
  const auto thrown = run_nccl_ranks(4, patient(20), [&](NcclRank rank) {
    Bytes value(1000);
    rank.link.barrier();
    if (rank.link.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      throw Error("the disk is full");
    }
    const Ticket ticket = rank.link.receive(1, on_device(value));
    if (rank.link.rank() == 2) {
      rank.link.wait_on_stream(ticket);
      rank.streams.finish_computing();
      came_back = true;
      rank.link.wait(ticket);
    }
    rank.link.wait(ticket);
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(8));
  EXPECT_TRUE(came_back);
  expect_thrown(thrown[1], "Error", "the disk is full");
  for (const std::size_t rank : {0, 2, 3})
    expect_thrown(thrown[rank], "RankFailed 1", "rank 1 on node7: the disk is full");
  EXPECT_STREQ(twin().violations(), "");
}

// Rank 1 hangs; the host of rank 0 waits for its device alone.
TEST(NcclLink, ARankThatHangsIsNamedThoughOnlyTheDeviceWaits) {
  const auto begin = Clock::now();
  const auto thrown = run_nccl_ranks(2, patient(2), [&](NcclRank rank) {
    Bytes value(1000);
    rank.link.barrier();
    if (rank.link.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(6));
      return;
    }
    rank.link.wait_on_stream(rank.link.receive(1, on_device(value)));
    rank.streams.finish_computing();
    rank.link.barrier();
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(12));
  expect_thrown(thrown[0], "Error", "rank 1 on node7 made no progress");
}

// An end that NCCL sees as an error: both ends are told, and nothing hangs.
TEST(NcclLink, AnErrorOfNcclIsTold) {
  const auto thrown = run_nccl_ranks(2, patient(20), [&](NcclRank rank) {
    Bytes value(1000);
    if (rank.link.rank() == 0)
      rank.link.wait(rank.link.send(1, on_device(std::as_const(value))));
    else
      rank.link.wait(rank.link.receive(0, {value.data(), 999, MemoryKind::kDevice}));
    rank.link.barrier();
  });
  EXPECT_NE(std::string(twin().violations()).find("rank 0 sends 1000"), std::string::npos);
  int told = 0;
  for (const std::exception_ptr& why : thrown) {
    const std::string text = what_was_thrown(why);
    // While the message is under way, or when the link is ended right after it.
    EXPECT_TRUE(text.find("NCCL failed to serve rank 0 on node7 and rank 1 on node7: invalid "
                          "usage") != std::string::npos ||
                text.find("NCCL failed to disconnect rank 0 on node7 and rank 1 on node7: invalid "
                          "usage") != std::string::npos)
        << text;
    told += text.starts_with("Error") ? 1 : 0;
  }
  EXPECT_GE(told, 1);
}

TEST(NcclLink, AbandonedBuffersAreNotWritten) {
  Bytes target(9000, std::byte{7});
  const auto thrown = run_nccl_ranks(2, patient(20), [&](NcclRank rank) {
    const Bytes source(9000);
    if (rank.link.rank() == 1) {
      rank.link.receive(0, on_device(target));
      rank.link.wait(rank.link.send(0, {}));
      rank.link.abandon();
      EXPECT_THROW(rank.link.send(0, on_device(source)), InternalError);
      throw Error("the disk is full");
    }
    rank.link.wait(rank.link.receive(1, {}));
    std::this_thread::sleep_for(milliseconds(100));
    rank.link.wait(rank.link.send(1, on_device(source)));
  });
  EXPECT_EQ(target, Bytes(9000, std::byte{7}));
  expect_thrown(thrown[1], "Error", "the disk is full");
  expect_thrown(thrown[0], "RankFailed 1", "the disk is full");
}

}  // namespace
}  // namespace longstride::comm
