// Ranks that fail, hang, or do not fit together.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "comm/thread_link.h"

namespace longstride::comm {
namespace {

using std::chrono::milliseconds;

// What a rank threw: its type and text.
std::string text_of(const std::exception_ptr& why) {
  if (why == nullptr) return "nothing";
  try {
    std::rethrow_exception(why);
  } catch (const RankFailed& e) {
    return fmt::format("RankFailed {}: {}", e.rank(), e.what());
  } catch (const InternalError& e) {
    return fmt::format("InternalError: {}", e.what());
  } catch (const Error& e) {
    return fmt::format("Error: {}", e.what());
  } catch (const std::exception& e) {
    return e.what();
  }
}

void expect_text(const std::exception_ptr& why, const std::string& type, const std::string& part) {
  const std::string text = text_of(why);
  EXPECT_TRUE(text.starts_with(type) && text.find(part) != std::string::npos)
      << "expected " << type << " with '" << part << "', got " << text;
}

LinkOptions quick(double timeout) {
  LinkOptions options;
  options.timeout_seconds = timeout;
  options.ending_seconds = timeout < 2 ? 0.3 : 2;
  options.part_bytes = 3000;
  options.host = "node7";
  return options;
}

class WrongSize : public testing::TestWithParam<std::pair<int, int>> {};
// Inline on both sides, on one, on none, the same number of parts.
INSTANTIATE_TEST_SUITE_P(Sizes, WrongSize,
                         testing::Values(std::pair{8, 12}, std::pair{0, 1}, std::pair{100, 9000},
                                         std::pair{9000, 100}, std::pair{9000, 20000},
                                         std::pair{20000, 19999}));

TEST_P(WrongSize, IsNoticedOnBothSides) {
  ThreadHub hub(2);
  const auto [sent, expected] = GetParam();
  const auto thrown =
      run_thread_ranks(hub, quick(20), [sent = sent, expected = expected](MessageLink& link) {
        std::vector<std::byte> bytes(static_cast<std::size_t>(std::max(sent, expected)));
        if (link.rank() == 0) {
          link.wait(link.send(1, {bytes.data(), sent}));
          link.barrier();
        } else {
          link.wait(link.receive(0, {bytes.data(), expected}));
        }
      });
  const std::string both =
      fmt::format("rank 0 sends {} bytes (message), rank 1 expects {} bytes", sent, expected);
  expect_text(thrown[1], "InternalError", both);
  expect_text(thrown[0], "RankFailed 1", both);
}

TEST(LinkFailure, AnotherOperationIsNoticed) {
  ThreadHub hub(2);
  const auto thrown = run_thread_ranks(hub, quick(20), [](MessageLink& link) {
    if (link.rank() == 0)
      link.barrier();
    else
      link.wait(link.receive(0, {}));
  });
  expect_text(thrown[1], "InternalError", "0 bytes (barrier), rank 1 expects 0 bytes (message)");
}

TEST(LinkFailure, TravelsToRanksThatWaitAndThatCompute) {
  ThreadHub hub(4);
  const auto begin = Clock::now();
  const auto thrown = run_thread_ranks(hub, quick(20), [&](MessageLink& link) {
    int value = 0;
    if (link.rank() == 1) throw Error("the disk is full");
    if (link.rank() == 2)
      while (true) {
        link.progressed();
        std::this_thread::sleep_for(milliseconds(5));
      }
    link.wait(link.receive(link.rank() == 0 ? 1 : 0, receive_buffer(value)));
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  expect_text(thrown[1], "Error", "the disk is full");
  for (const std::size_t rank : {0, 2, 3})
    expect_text(thrown[rank], "RankFailed 1", "rank 1 on node7: the disk is full");
  EXPECT_FALSE(hub.aborted());  // all came to an orderly end
}

// All fail at the same time: one tells.
TEST(LinkFailure, IsToldOnce) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    ThreadHub hub(4);
    std::atomic<int> tell = 0;
    const auto thrown = run_thread_ranks(hub, quick(20), [&](MessageLink& link) {
      link.barrier();
      if (link.rank() == 0) std::this_thread::sleep_for(milliseconds(20 * (repeat % 2)));
      tell += link.fail("no such file", 2) ? 1 : 0;
      throw Error("no such file");
    });
    EXPECT_EQ(tell.load(), 1);
  }
}

TEST(LinkFailure, ARankThatIsStoppedIsNamed) {
  ThreadHub hub(4);
  const auto begin = Clock::now();
  const auto thrown = run_thread_ranks(hub, quick(0.6), [&](MessageLink& link) {
    link.barrier();
    int value = 0;
    if (link.rank() == 2) {
      hub.freeze(2);
      std::this_thread::sleep_for(milliseconds(1500));
      return;  // its close() finds nobody
    }
    // 0 waits for 1, 1 for 2, 3 for 0: all name 2.
    link.wait(link.receive(link.rank() == 0 ? 1 : link.rank() == 1 ? 2 : 0, receive_buffer(value)));
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  int errors = 0;
  for (const std::size_t rank : {0, 1, 3}) {
    const std::string text = text_of(thrown[rank]);
    EXPECT_NE(text.find("rank 2 on node7 has not been heard of"), std::string::npos) << text;
    errors += text.starts_with("Error") ? 1 : 0;
  }
  EXPECT_GE(errors, 1);
  EXPECT_TRUE(hub.aborted());
}

TEST(LinkFailure, ARankThatBeatsButDoesNotAdvanceIsNamed) {
  ThreadHub hub(3);
  const auto thrown = run_thread_ranks(hub, quick(0.4), [&](MessageLink& link) {
    int value = 0;
    if (link.rank() == 2)
      std::this_thread::sleep_for(milliseconds(1200));  // hangs
    else
      link.wait(link.receive(link.rank() + 1, receive_buffer(value)));
    link.barrier();
  });
  EXPECT_NE(text_of(thrown[0]).find("rank 2 on node7 made no progress"), std::string::npos)
      << text_of(thrown[0]);
  EXPECT_NE(text_of(thrown[1]).find("rank 2 on node7 made no progress"), std::string::npos)
      << text_of(thrown[1]);
  EXPECT_TRUE(text_of(thrown[2]).starts_with("RankFailed")) << text_of(thrown[2]);
}

// Several times the timeout, but it says that it advances.
TEST(LinkFailure, ALateRankThatAdvancesIsWaitedFor) {
  ThreadHub hub(3);
  const auto thrown = run_thread_ranks(hub, quick(1.5), [&](MessageLink& link) {
    int value = 0;
    if (link.rank() == 2)
      for (int i = 0; i < 30; ++i) {
        std::this_thread::sleep_for(milliseconds(120));
        link.progressed();
      }
    else
      link.wait(link.receive(link.rank() + 1, receive_buffer(value)));
    if (link.rank() > 0) link.wait(link.send(link.rank() - 1, send_buffer(value)));
  });
  for (const std::exception_ptr& why : thrown) EXPECT_EQ(text_of(why), "nothing");
}

TEST(LinkFailure, RanksThatWaitForEachOtherAreNoticed) {
  ThreadHub hub(3);
  const auto thrown = run_thread_ranks(hub, quick(0.3), [&](MessageLink& link) {
    int value = 0;
    link.wait(link.receive((link.rank() + 1) % 3, receive_buffer(value)));
  });
  int errors = 0;
  for (const std::exception_ptr& why : thrown) {
    const std::string text = text_of(why);
    EXPECT_NE(text.find("waits for others that wait for it"), std::string::npos) << text;
    errors += text.starts_with("Error") ? 1 : 0;
  }
  EXPECT_GE(errors, 1);
}

// A receive whose buffer is gone must not be served.
TEST(LinkFailure, AbandonedBuffersAreNotWritten) {
  ThreadHub hub(2);
  std::vector<std::byte> target(9000, std::byte{7});
  const auto thrown = run_thread_ranks(hub, quick(20), [&](MessageLink& link) {
    const std::vector<std::byte> source(9000);
    if (link.rank() == 1) {
      link.receive(0, target);
      link.wait(link.send(0, {}));
      link.abandon();
      link.abandon();  // again is allowed
      EXPECT_THROW(link.send(0, {}), InternalError);
      throw Error("the disk is full");
    }
    link.wait(link.receive(1, {}));
    std::this_thread::sleep_for(milliseconds(100));
    link.wait(link.send(1, source));
  });
  EXPECT_EQ(target, std::vector<std::byte>(9000, std::byte{7}));
  expect_text(thrown[1], "Error", "the disk is full");
  expect_text(thrown[0], "RankFailed 1", "the disk is full");
}

TEST(LinkFailure, ARankThatNeverComesIsNamed) {
  ThreadHub hub(2);
  try {
    const MessageLink link(hub.wire(0), quick(0.3));
    ADD_FAILURE() << "the group was formed without rank 1";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "rank 1 of 2 did not come within 0.3 s");
  }
  EXPECT_TRUE(hub.aborted());
}

TEST(LinkFailure, AWireThatCannotBeMadeIsAnErrorOfTheCaller) {
  const MakeWire broken = []() -> std::unique_ptr<Wire> { throw Error("no such library"); };
  EXPECT_THROW(MessageLink(broken, quick(1)), Error);
}

}  // namespace
}  // namespace longstride::comm
