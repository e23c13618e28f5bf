#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"

namespace longstride {
namespace {

class ThreadPool : public ::testing::Test {
 protected:
  ~ThreadPool() override { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

void expect_all_once(std::int64_t n) {
  std::vector<std::atomic<int>> calls(static_cast<std::size_t>(n));
  parallel_for(n, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
  for (const auto& c : calls) ASSERT_EQ(c, 1) << "of " << n;
}

TEST_F(ThreadPool, CallsEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    for (const std::int64_t n : {0, 1, 2, 3, 100, 10000}) expect_all_once(n);
  }
}

TEST_F(ThreadPool, DoesNothingForNothing) {
  parallel_for(0, [](std::int64_t) { FAIL(); });
  parallel_for(-3, [](std::int64_t) { FAIL(); });
}

TEST_F(ThreadPool, ManyShortRunsInARow) {
  set_thread_count(3);
  std::atomic<std::int64_t> sum{0};
  for (int run = 0; run < 5000; ++run) parallel_for(4, [&](std::int64_t i) { sum += i; });
  EXPECT_EQ(sum, 5000 * 6);
}

TEST_F(ThreadPool, UsesItsThreads) {
  set_thread_count(3);
  // Each index waits until all three have begun, which takes three threads.
  std::atomic<int> begun{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  parallel_for(3, [&](std::int64_t) {
    ++begun;
    while (begun < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(begun, 3);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST_F(ThreadPool, SlotsAreInRangeAndNeverShared) {
  for (const int threads : {1, 4, 2}) {
    set_thread_count(threads);
    std::vector<std::atomic<int>> inside(static_cast<std::size_t>(threads));
    std::atomic<int> out_of_range{0}, shared{0};
    parallel_for(2000, [&](std::int64_t) {
      const int slot = thread_slot();
      if (slot < 0 || slot >= threads) {
        ++out_of_range;
        return;
      }
      if (inside[static_cast<std::size_t>(slot)]++ != 0) ++shared;
      std::this_thread::yield();
      --inside[static_cast<std::size_t>(slot)];
    });
    EXPECT_EQ(out_of_range, 0);
    EXPECT_EQ(shared, 0);
  }
}

TEST_F(ThreadPool, RethrowsAndWorksAfterwards) {
  for (const int threads : {1, 4}) {
    set_thread_count(threads);
    for (const std::int64_t n : {1, 2, 1000}) {
      try {
        parallel_for(n, [&](std::int64_t i) {
          if (i == n / 2) throw std::runtime_error("from index " + std::to_string(i));
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(e.what(), "from index " + std::to_string(n / 2));
      }
      expect_all_once(100);
    }
  }
}

TEST_F(ThreadPool, ThrowsOneOfManyErrors) {
  set_thread_count(4);
  EXPECT_THROW(parallel_for(1000, [](std::int64_t) { throw Error("each of them"); }), Error);
  expect_all_once(100);
}

TEST_F(ThreadPool, RefusesACallInsideACall) {
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    for (const std::int64_t n : {1, 8}) {
      EXPECT_THROW(parallel_for(n, [](std::int64_t) { parallel_for(2, [](std::int64_t) {}); }),
                   InternalError);
      expect_all_once(100);
    }
  }
}

TEST_F(ThreadPool, CallersTakeTurns) {
  set_thread_count(2);
  std::atomic<std::int64_t> sum{0};
  const auto call = [&] {
    for (int run = 0; run < 200; ++run) parallel_for(10, [&](std::int64_t i) { sum += i; });
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(sum, 2 * 200 * 45);
}

TEST_F(ThreadPool, NeedsAThread) {
  EXPECT_THROW(set_thread_count(0), InternalError);
  EXPECT_GE(thread_count(), 1);
}

}  // namespace
}  // namespace longstride
