// The twin of NCCL notices what NCCL would let pass, or answer by hanging.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "tests/comm/nccl_ranks.h"

namespace longstride::comm {
namespace {

using nccl::Result;

// Two ranks with communicators and streams, used by NCCL's own functions.
class NcclTwin : public testing::Test {
 protected:
  NcclTwin() {
    reset_twin();
    for (void*& stream : streams_) stream = twin().stream_create();
  }
  ~NcclTwin() override {
    for (nccl::Comm* comm : comms_)
      if (comm != nullptr) calls_.comm_abort(comm);
    for (void* stream : streams_) twin().stream_destroy(stream);
  }
  void join() {
    nccl::UniqueId id{};
    EXPECT_EQ(calls_.get_unique_id(&id), nccl::kSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      nccl::Config config;
      EXPECT_EQ(calls_.comm_init(&comms_[static_cast<std::size_t>(rank)], 2, id, rank, &config),
                nccl::kInProgress);
    }
    EXPECT_EQ(settle(0), nccl::kSuccess);
    EXPECT_EQ(settle(1), nccl::kSuccess);
  }
  // The state once it is not "in progress"; gives up after a second.
  Result settle(std::size_t rank) {
    Result state = nccl::kInProgress;
    for (int i = 0; i < 1000 && state == nccl::kInProgress; ++i) {
      EXPECT_EQ(calls_.async_error(comms_[rank], &state), nccl::kSuccess);
      if (state == nccl::kInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return state;
  }
  Result send(std::size_t rank, int to, std::size_t count, nccl::DataType type = nccl::kUint8) {
    return calls_.send(bytes_[rank].data(), count, type, to, comms_[rank], streams_[rank]);
  }
  Result receive(std::size_t rank, int from, std::size_t count,
                 nccl::DataType type = nccl::kUint8) {
    return calls_.receive(bytes_[rank].data() + 32, count, type, from, comms_[rank],
                          streams_[rank]);
  }
  Result broadcast(std::size_t rank, int root, std::size_t count) {
    return calls_.broadcast(bytes_[rank].data(), bytes_[rank].data(), count, nccl::kUint8, root,
                            comms_[rank], streams_[rank]);
  }
  void synchronize() {
    for (void* stream : streams_) twin().stream_synchronize(stream);
  }
  void expect_violation(const std::string& part) {
    const std::string all = twin().violations();
    EXPECT_NE(all.find(part), std::string::npos) << "expected '" << part << "', got: " << all;
  }

  const nccl::Functions& calls_ = twin_library().calls();
  std::array<nccl::Comm*, 2> comms_{};
  std::array<void*, 2> streams_{};
  std::array<std::array<std::byte, 64>, 2> bytes_{};
};

TEST_F(NcclTwin, MovesBytesAndFindsNothingWrong) {
  join();
  bytes_[0][3] = std::byte{42};
  EXPECT_EQ(send(0, 1, 8), nccl::kInProgress);
  EXPECT_EQ(receive(1, 0, 8), nccl::kInProgress);
  EXPECT_EQ(settle(0), nccl::kSuccess);
  EXPECT_EQ(settle(1), nccl::kSuccess);
  synchronize();
  EXPECT_EQ(bytes_[1][32 + 3], std::byte{42});
  bytes_[1][0] = std::byte{7};
  EXPECT_EQ(broadcast(0, 1, 4), nccl::kInProgress);
  EXPECT_EQ(broadcast(1, 1, 4), nccl::kInProgress);
  EXPECT_EQ(settle(0), nccl::kSuccess);
  EXPECT_EQ(settle(1), nccl::kSuccess);
  synchronize();
  EXPECT_EQ(bytes_[0][0], std::byte{7});
  for (nccl::Comm* comm : comms_) EXPECT_EQ(calls_.comm_finalize(comm), nccl::kInProgress);
  for (const std::size_t rank : {0, 1}) {
    EXPECT_EQ(settle(rank), nccl::kSuccess);
    EXPECT_EQ(calls_.comm_destroy(std::exchange(comms_[rank], nullptr)), nccl::kSuccess);
  }
  EXPECT_STREQ(twin().violations(), "");
}

TEST_F(NcclTwin, NoticesAnotherSize) {
  join();
  send(0, 1, 8);
  receive(1, 0, 12);
  synchronize();
  expect_violation("rank 0 sends 8 of type 1 to rank 1, which expects 12 of type 1");
  EXPECT_EQ(settle(0), nccl::kInvalidUsage);
  EXPECT_EQ(settle(1), nccl::kInvalidUsage);
}

TEST_F(NcclTwin, NoticesAnotherType) {
  join();
  send(0, 1, 8, nccl::kInt8);
  receive(1, 0, 8);
  synchronize();
  expect_violation("rank 0 sends 8 of type 0 to rank 1, which expects 8 of type 1");
}

TEST_F(NcclTwin, NoticesSendsAndReceivesThatNeedAGroup) {
  join();
  send(0, 1, 8);
  send(1, 0, 8);
  synchronize();
  expect_violation("deadlock: rank ");
}

TEST_F(NcclTwin, NoticesAMessageToItselfWithoutAGroup) {
  join();
  send(0, 0, 8);
  synchronize();
  expect_violation("deadlock: rank 0 waits for rank 0");
}

TEST_F(NcclTwin, NoticesAnUnfinishedGroup) {
  join();
  EXPECT_EQ(calls_.group_start(), nccl::kSuccess);
  EXPECT_EQ(send(0, 1, 8), nccl::kSuccess);
  Result state = nccl::kSuccess;
  calls_.async_error(comms_[0], &state);
  EXPECT_EQ(state, nccl::kInvalidUsage);
  expect_violation("ncclCommGetAsyncError within a group");
  expect_violation("a group was not ended");
  EXPECT_EQ(calls_.group_end(), nccl::kInvalidUsage);
  expect_violation("the end of a group that was not begun");
}

TEST_F(NcclTwin, NoticesWrongRanks) {
  join();
  EXPECT_EQ(send(0, 2, 8), nccl::kInvalidArgument);
  expect_violation("ncclSend with rank 2 of 2");
  nccl::UniqueId id{};
  calls_.get_unique_id(&id);
  nccl::Config config;
  nccl::Comm* comm = nullptr;
  EXPECT_EQ(calls_.comm_init(&comm, 2, id, 2, &config), nccl::kInvalidArgument);
  expect_violation("rank 2 of 2");
  nccl::Comm* first = nullptr;
  EXPECT_EQ(calls_.comm_init(&first, 2, id, 0, &config), nccl::kInProgress);
  EXPECT_EQ(calls_.comm_init(&comm, 2, id, 0, &config), nccl::kInvalidUsage);
  expect_violation("rank 0 has come twice");
  EXPECT_EQ(calls_.comm_init(&comm, 3, id, 1, &config), nccl::kInvalidArgument);
  expect_violation("rank 1 counts 3 ranks, others 2");
  EXPECT_EQ(calls_.comm_abort(first), nccl::kSuccess);
}

TEST_F(NcclTwin, NoticesCallsOfACommunicatorThatHasEnded) {
  join();
  EXPECT_EQ(calls_.comm_abort(comms_[0]), nccl::kSuccess);
  EXPECT_EQ(send(0, 1, 8), nccl::kInvalidUsage);
  expect_violation("ncclSend of a communicator that has ended");
  comms_[0] = nullptr;
  EXPECT_EQ(send(0, 1, 8), nccl::kInvalidArgument);
  expect_violation("ncclSend of no communicator");
}

TEST_F(NcclTwin, NoticesCallsWhileSomethingIsInProgress) {
  join();
  EXPECT_EQ(send(0, 1, 8), nccl::kInProgress);
  EXPECT_EQ(send(0, 1, 8), nccl::kInvalidUsage);
  expect_violation("ncclSend while something is in progress");
}

TEST_F(NcclTwin, NoticesAnotherOrderOfCollectives) {
  join();
  broadcast(0, 0, 8);
  broadcast(1, 1, 8);
  synchronize();
  expect_violation("broadcasts 8 of type 1 from rank");
}

TEST_F(NcclTwin, NoticesCollectivesOfAnotherSize) {
  join();
  broadcast(0, 0, 8);
  broadcast(1, 0, 4);
  synchronize();
  expect_violation("collective 1: rank ");
}

TEST_F(NcclTwin, NoticesACollectiveThatMeetsAMessage) {
  join();
  broadcast(0, 0, 8);
  receive(1, 0, 8);
  synchronize();
  expect_violation("deadlock: rank ");
}

TEST_F(NcclTwin, NoticesAnEndWhileMessagesAreUnderWay) {
  join();
  send(0, 1, 8);
  EXPECT_EQ(settle(0), nccl::kSuccess);
  EXPECT_EQ(calls_.comm_finalize(comms_[0]), nccl::kInvalidUsage);
  expect_violation("ncclCommFinalize while messages are under way");
}

TEST_F(NcclTwin, NoticesAnEndWithoutFinalize) {
  join();
  EXPECT_EQ(calls_.comm_destroy(comms_[0]), nccl::kInvalidUsage);
  expect_violation("ncclCommDestroy before the end");
}

TEST_F(NcclTwin, NoticesTwoStreamsOfOneCommunicator) {
  join();
  EXPECT_EQ(calls_.group_start(), nccl::kSuccess);
  send(0, 1, 8);
  std::swap(streams_[0], streams_[1]);
  receive(0, 1, 8);
  EXPECT_EQ(calls_.group_end(), nccl::kInvalidUsage);
  expect_violation("two streams");
}

TEST_F(NcclTwin, NoticesACommunicatorThatBlocks) {
  nccl::UniqueId id{};
  calls_.get_unique_id(&id);
  nccl::Config config;
  config.blocking = 1;
  nccl::Comm* comm = nullptr;
  EXPECT_EQ(calls_.comm_init(&comm, 1, id, 0, &config), nccl::kInvalidArgument);
  expect_violation("a communicator that blocks");
  config = {};
  config.magic = 1;
  EXPECT_EQ(calls_.comm_init(&comm, 1, id, 0, &config), nccl::kInvalidArgument);
  EXPECT_EQ(calls_.comm_init(&comm, 1, {}, 0, &config), nccl::kInvalidArgument);
}

TEST_F(NcclTwin, IsRefusedInAnOldVersion) {
  twin().set_version(21703);
  try {
    const NcclLibrary library(twin_library().file());
    ADD_FAILURE() << "an old NCCL was taken";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("is NCCL 2.17.3; 2.18.0 or newer is needed"),
              std::string::npos)
        << e.what();
  }
  EXPECT_THROW(NcclLibrary("/nonexistent/libnccl.so.2"), Error);
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace longstride::comm
