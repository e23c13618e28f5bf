#include "model/workspace.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

// Message of the InternalError that f throws; "" if none.
template <class F>
std::string failure_of(const F& f) {
  try {
    f();
  } catch (const InternalError& e) {
    return e.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// x lives throughout, y within it.
void take_x_and_y(Workspace& workspace, std::int64_t rows) {
  const Lease x = workspace.take("x", DType::kF32, {rows, 4});
  const Lease y = workspace.take("y", DType::kBF16, {rows});
}

WorkspaceTrace recorded(std::int64_t rows) {
  Workspace workspace;
  workspace.start_recording();
  take_x_and_y(workspace, rows);
  return workspace.finish_recording();
}

class Replay : public ::testing::Test {
 protected:
  const WorkspaceTrace trace_ = recorded(8);
  const std::vector<std::int64_t> offsets_ = {256, 0};
  std::vector<std::byte> arena_ = std::vector<std::byte>(1024);
  Workspace workspace_;
  void SetUp() override { workspace_.start_replay(arena_.data(), trace_, offsets_); }
};

TEST(Recording, WritesDownSizesAndLifetimes) {
  Workspace workspace;
  workspace.start_recording();
  {
    Lease a = workspace.take("a", DType::kF32, {3, 5});
    EXPECT_EQ(a.view().data(), nullptr);
    EXPECT_EQ(a.view().shape(), (Shape{3, 5}));
    const Lease b = workspace.take("b", DType::kI64, {2});
    a.release();
    const Lease c = workspace.take("c", DType::kBF16, {0});
  }
  const WorkspaceTrace trace = workspace.finish_recording();
  ASSERT_EQ(trace.size(), 3u);
  const auto expect = [](const WorkspaceRequest& r, const char* name, std::int64_t bytes,
                         std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(r.name, name);
    EXPECT_EQ(r.bytes, bytes);
    EXPECT_EQ(r.begin, begin);
    EXPECT_EQ(r.end, end);
  };
  expect(trace[0], "a", 60, 0, 2);
  expect(trace[1], "b", 16, 1, 5);
  expect(trace[2], "c", 0, 3, 4);
}

TEST(Recording, StartsAfreshEachTime) {
  Workspace workspace;
  for (int i = 0; i < 2; ++i) {
    workspace.start_recording();
    take_x_and_y(workspace, 8);
    const WorkspaceTrace trace = workspace.finish_recording();
    ASSERT_EQ(trace.size(), 2u);
    EXPECT_EQ(trace[0].begin, 0);
  }
}

TEST(Recording, CannotEndWithTensorsTaken) {
  Workspace workspace;
  workspace.start_recording();
  Lease a = workspace.take("a", DType::kF32, {1});
  EXPECT_TRUE(holds(failure_of([&] { workspace.finish_recording(); }), "1 tensors still taken"));
  EXPECT_THROW(workspace.start_recording(), InternalError);
  EXPECT_THROW(workspace.abandon(), InternalError);
  a.release();
  EXPECT_EQ(workspace.finish_recording().size(), 1u);
}

TEST(Workspace, GivesNothingOutsideARecordingOrReplay) {
  Workspace workspace;
  EXPECT_TRUE(holds(failure_of([&] { workspace.take("a", DType::kF32, {1}); }),
                    "'a' taken outside a recording or replay"));
}

TEST(Workspace, FinishesOnlyWhatWasStarted) {
  Workspace workspace;
  EXPECT_THROW(workspace.finish_recording(), InternalError);
  EXPECT_THROW(workspace.finish_replay(), InternalError);
}

TEST_F(Replay, GivesTheChosenAddresses) {
  {
    const Lease x = workspace_.take("x", DType::kF32, {8, 4});
    const Lease y = workspace_.take("y", DType::kBF16, {8});
    EXPECT_EQ(x.view().data(), arena_.data() + 256);
    EXPECT_EQ(y.view().data(), arena_.data());
    EXPECT_EQ(y.view().dtype(), DType::kBF16);
  }
  workspace_.finish_replay();
  EXPECT_NO_THROW(workspace_.start_replay(arena_.data(), trace_, offsets_));
  take_x_and_y(workspace_, 8);
  workspace_.finish_replay();
}

TEST_F(Replay, AShortChunkFits) {
  take_x_and_y(workspace_, 3);
  EXPECT_NO_THROW(workspace_.finish_replay());
}

TEST_F(Replay, RefusesALargerRequest) {
  EXPECT_TRUE(holds(failure_of([&] {
                      workspace_.take("x", DType::kF32, {9, 4});
                    }),
                    "'x' wants 144 bytes, recorded were 128"));
}

TEST_F(Replay, RefusesAnotherName) {
  EXPECT_TRUE(holds(failure_of([&] { workspace_.take("y", DType::kF32, {1}); }),
                    "request 0 is 'y', recorded was 'x'"));
}

TEST_F(Replay, RefusesMoreThanWasRecorded) {
  take_x_and_y(workspace_, 8);
  EXPECT_TRUE(holds(failure_of([&] { workspace_.take("z", DType::kF32, {1}); }),
                    "request 2 is 'z', recorded was 'nothing'"));
}

TEST_F(Replay, ComparesNamesByTheirText) {
  const std::string name = "x";  // another address than the literal's
  EXPECT_NO_THROW(workspace_.take(name.c_str(), DType::kF32, {8, 4}));
}

TEST_F(Replay, MustBeWhole) {
  { const Lease x = workspace_.take("x", DType::kF32, {8, 4}); }
  EXPECT_TRUE(holds(failure_of([&] { workspace_.finish_replay(); }), "after 1 requests"));
}

TEST_F(Replay, CannotEndWithTensorsTaken) {
  const Lease x = workspace_.take("x", DType::kF32, {8, 4});
  { const Lease y = workspace_.take("y", DType::kBF16, {8}); }
  EXPECT_TRUE(holds(failure_of([&] { workspace_.finish_replay(); }), "1 still taken"));
  EXPECT_THROW(workspace_.abandon(), InternalError);
}

TEST_F(Replay, MayBeAbandoned) {
  { const Lease x = workspace_.take("x", DType::kF32, {8, 4}); }
  workspace_.abandon();
  workspace_.start_replay(arena_.data(), trace_, offsets_);
  take_x_and_y(workspace_, 8);
  workspace_.finish_replay();
}

TEST_F(Replay, OneAtATime) {
  EXPECT_THROW(workspace_.start_replay(arena_.data(), trace_, offsets_), InternalError);
  EXPECT_THROW(workspace_.start_recording(), InternalError);
}

TEST(StartReplay, WantsAnAddressForEveryRequest) {
  const WorkspaceTrace trace = recorded(8);
  const std::vector<std::int64_t> offsets = {0};
  Workspace workspace;
  EXPECT_TRUE(holds(failure_of([&] { workspace.start_replay(nullptr, trace, offsets); }),
                    "2 requests, 1 offsets"));
}

// Addresses alone: nothing of this size is allocated or read.
TEST(StartReplay, AddressesPastTwoGigabytes) {
  const WorkspaceTrace trace = recorded(8);
  const std::vector<std::int64_t> offsets = {0, std::int64_t{5} << 33};
  auto* base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  Workspace workspace;
  workspace.start_replay(base, trace, offsets);
  const Lease x = workspace.take("x", DType::kF32, {8, 4}),
              y = workspace.take("y", DType::kBF16, {8});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(y.view().data()),
            (std::uintptr_t{1} << 40) + (std::uintptr_t{5} << 33));
}

class Leases : public ::testing::Test {
 protected:
  Workspace workspace_;
  void SetUp() override { workspace_.start_recording(); }
  Lease take(const char* name) { return workspace_.take(name, DType::kF32, {4}); }
};

TEST_F(Leases, AnEmptyOneIsAbsent) {
  Lease none;
  EXPECT_FALSE(none.present());
  none.release();
  EXPECT_TRUE(workspace_.finish_recording().empty());
}

TEST_F(Leases, MovingMovesTheTensor) {
  Lease a = take("a");
  Lease b = std::move(a);
  EXPECT_FALSE(a.present());  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(b.present());
  a.release();  // does nothing
  EXPECT_THROW(workspace_.finish_recording(), InternalError);
  b.release();
  b.release();
  EXPECT_EQ(workspace_.finish_recording().at(0).end, 1);
}

TEST_F(Leases, AssigningGivesTheOldOneBack) {
  Lease a = take("a"), b = take("b");
  a = std::move(b);
  EXPECT_TRUE(a.present());
  a.release();
  const WorkspaceTrace trace = workspace_.finish_recording();
  EXPECT_EQ(trace[0].end, 2);
  EXPECT_EQ(trace[1].end, 3);
}

TEST_F(Leases, AssigningToItselfKeepsIt) {
  Lease a = take("a");
  Lease& same = a;
  a = std::move(same);
  EXPECT_TRUE(a.present());
  a.release();
  EXPECT_EQ(workspace_.finish_recording().at(0).end, 1);
}

TEST_F(Leases, AVectorOfThemGivesAllBack) {
  {
    std::vector<Lease> leases;
    for (int i = 0; i < 20; ++i) leases.push_back(take("a"));
  }
  EXPECT_EQ(workspace_.finish_recording().size(), 20u);
}

}  // namespace
}  // namespace longstride
