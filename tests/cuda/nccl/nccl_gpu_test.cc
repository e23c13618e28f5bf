// Links over the real NCCL on one GPU. Two ranks on it are threads of this process; NCCL allows
// that from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "comm/control.h"
#include "comm/link_check.h"
#include "comm/link_choice.h"
#include "comm/thread_link.h"

namespace longstride::comm {
namespace {

LinkOptions with_timeout(double seconds) {
  LinkOptions options;
  options.timeout_seconds = seconds;
  options.host = "node7";
  return options;
}

std::string thrown_text(const std::exception_ptr& why) {
  if (why == nullptr) return "nothing";
  try {
    std::rethrow_exception(why);
  } catch (const RankFailed& e) {
    return fmt::format("RankFailed: {}", e.what());
  } catch (const Error& e) {
    return fmt::format("Error: {}", e.what());
  } catch (const std::exception& e) {
    return e.what();
  }
}

bool can_share() {
  const std::unique_ptr<Device> device = make_cuda_device();
  const LinkProbe probe = probe_nccl(*device);
  const std::vector<LinkFacts> two(2, probe.facts);
  const std::vector<std::string> hosts(2, "node7");
  return choose_link(LinkWish::kNccl, two, hosts).nccl;
}

class NcclOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_is_available()) GTEST_SKIP() << "no GPU";
  }
  // Each rank with a device and a link of its own.
  static std::vector<std::exception_ptr> run(int ranks, double timeout,
                                             const std::function<void(Device&, NcclLink&)>& body) {
    ThreadHub hub(ranks);
    return run_thread_ranks(hub, with_timeout(timeout), [&](MessageLink& host) {
      const std::unique_ptr<Device> device = make_cuda_device();
      const LinkProbe probe = probe_nccl(*device);
      LS_CHECK(probe.library != nullptr, "{}", probe.facts.why_no_nccl);
      NcclOptions options;
      options.lanes = all_lanes(ranks);
      options.collectives = true;
      options.timeout_seconds = timeout;
      NcclLink link(*probe.library, make_link_streams(*device), host, options);
      body(*device, link);
      link.close();
    });
  }
};

TEST_F(NcclOnGpu, OneRankSendsToItself) {
  const auto thrown = run(1, 60, [](Device& device, NcclLink& link) {
    for (const std::int64_t bytes : {0, 1, 4097, 64 << 20})
      check_link(link, bytes, {MemoryKind::kDevice, &device});
    check_link(link, 4097);
  });
  EXPECT_EQ(thrown_text(thrown[0]), "nothing");
}

// The device's stream waits for the message, the host does not.
TEST_F(NcclOnGpu, MessagesFollowTheDevicesStream) {
  const auto thrown = run(1, 60, [](Device& device, NcclLink& link) {
    constexpr std::int64_t kBytes = 32 << 20;
    const CheckMemory memory{MemoryKind::kDevice, &device};
    CheckBuffer target(memory, kBytes);
    for (int turn = 0; turn < 80; ++turn) {  // more than marks
      std::vector<std::byte> content(1000, std::byte(turn + 1));
      const CheckBuffer source(memory, content);
      const Ticket sending = link.send(0, source.out());
      const Ticket receiving = link.receive(0, {target.in().data, 1000, MemoryKind::kDevice});
      link.wait_on_stream(receiving);
      link.wait_on_stream(sending);
      std::vector<std::byte> got(1000);
      device.copy_to_host(got.data(), target.in().data, 1000);
      ASSERT_EQ(got, content) << turn;
    }
  });
  EXPECT_EQ(thrown_text(thrown[0]), "nothing");
}

// Rank 1 never comes to NCCL: rank 0 gives up, and the GPU can be used afterwards.
TEST_F(NcclOnGpu, AConnectionThatIsNotMadeIsGivenUp) {
  ThreadHub hub(2);
  const auto begin = Clock::now();
  const auto thrown = run_thread_ranks(hub, with_timeout(60), [&](MessageLink& host) {
    if (host.rank() == 1) {
      gather_texts(host, "");
      while (true) {
        host.progressed();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    const std::unique_ptr<Device> device = make_cuda_device();
    const LinkProbe probe = probe_nccl(*device);
    NcclOptions options;
    options.lanes = {{0, 1}};
    options.timeout_seconds = 3;
    const NcclLink link(*probe.library, make_link_streams(*device), host, options);
  });
  const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_GT(taken, 2.9);
  EXPECT_LT(taken, 20);
  EXPECT_NE(thrown_text(thrown[0]).find("NCCL did not connect rank 0 on node7 with rank 1"),
            std::string::npos)
      << thrown_text(thrown[0]);
  const auto again = run(1, 60, [](Device& device, NcclLink& link) {
    check_link(link, 4097, {MemoryKind::kDevice, &device});
  });
  EXPECT_EQ(thrown_text(again[0]), "nothing");
}

// What NCCL itself says to two ranks on one GPU, where it forbids them.
TEST_F(NcclOnGpu, AnErrorOfNcclIsTold) {
  if (can_share()) GTEST_SKIP() << "NCCL allows two ranks on one GPU";
  const auto begin = Clock::now();
  const auto thrown = run(2, 30, [](Device& /*device*/, NcclLink& /*link*/) {});
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(25));
  for (const std::exception_ptr& why : thrown) {
    EXPECT_NE(thrown_text(why).find("NCCL failed to"), std::string::npos) << thrown_text(why);
    fmt::print("{}\n", thrown_text(why));
  }
}

TEST_F(NcclOnGpu, TwoRanksShareAGpu) {
  if (!can_share()) GTEST_SKIP() << "NCCL forbids two ranks on one GPU";
  const auto thrown = run(2, 60, [](Device& device, NcclLink& link) {
    for (const std::int64_t bytes : {0, 1, 4097, 64 << 20})
      check_link(link, bytes, {MemoryKind::kDevice, &device});
  });
  for (const std::exception_ptr& why : thrown) EXPECT_EQ(thrown_text(why), "nothing");
}

// A receive that nobody answers runs on the GPU, and the device's stream waits for it: the failure
// of the other rank ends both.
TEST_F(NcclOnGpu, AMessageUnderWayIsAborted) {
  if (!can_share()) GTEST_SKIP() << "NCCL forbids two ranks on one GPU";
  const auto begin = Clock::now();
  const auto thrown = run(2, 60, [](Device& device, NcclLink& link) {
    CheckBuffer target({MemoryKind::kDevice, &device}, 1 << 20);
    link.barrier();
    if (link.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      throw Error("the disk is full");
    }
    link.wait_on_stream(link.receive(1, target.in()));
    device.stream().synchronize();
    link.barrier();
  });
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
  EXPECT_NE(thrown_text(thrown[0]).find("the disk is full"), std::string::npos)
      << thrown_text(thrown[0]);
}

}  // namespace
}  // namespace longstride::comm
