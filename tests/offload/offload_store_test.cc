// Records keep their content in host memory and on disk, however slow the copies are.
#include "offload/offload_store.h"

#include <cstring>

#include "base/error.h"
#include "tests/data/temp_directory.h"
#include "tests/offload/wait_sites.h"
#include "tests/pages/watched_mover.h"

namespace longstride {
namespace {

constexpr std::int64_t kBytes = 4096, kPieces = 4, kPiece = kBytes / kPieces;

class OffloadStores : public ::testing::Test {
 protected:
  OffloadRecords records() const {
    return {.bytes = kBytes,
            .most_pieces = kPieces,
            .what = "the test's records",
            .what_on_host = "the test's records in host memory"};
  }
  // The record in pieces that are in reverse order on the device.
  std::vector<OffloadPiece> pieces() const {
    std::vector<OffloadPiece> all;
    for (std::int64_t i = 0; i < kPieces; ++i)
      all.push_back({i * kPiece, kPiece, device_memory_->data() + (kPieces - 1 - i) * kPiece});
    return all;
  }
  void write(OffloadStore& store, std::int64_t place, int value) {
    mover_.wait(Lane::kCompute, last_out_, *wait_site("offload/write-after-read"));
    mover_.wait(Lane::kCompute, last_in_, *wait_site("offload/write-after-read"));
    mover_.computing_on(device_memory_->data(), kBytes, true);
    for (std::int64_t i = 0; i < kPieces; ++i)
      std::memset(device_memory_->data() + (kPieces - 1 - i) * kPiece, value + static_cast<int>(i),
                  kPiece);
    mover_.wait(Lane::kToHost, mover_.fence(Lane::kCompute),
                *wait_site("offload/read-after-write"));
    last_out_ = store.write(place, pieces());
  }
  bool reads(OffloadStore& store, std::int64_t place, int value) {
    mover_.wait(Lane::kFromHost, last_out_, *wait_site("offload/read-after-write"));
    last_in_ = store.read(place, pieces());
    mover_.wait(Lane::kCompute, last_in_, *wait_site("offload/read-after-write"));
    mover_.computing_on(device_memory_->data(), kBytes, false);
    const Fence computed = mover_.fence(Lane::kCompute);
    mover_.wait(Lane::kFromHost, computed, *wait_site("offload/read-after-write"));
    bool right = true;
    for (std::int64_t i = 0; i < kBytes; ++i)
      right = right && device_memory_->data()[i] ==
                           static_cast<std::byte>(value + (kPieces - 1 - i / kPiece));
    return right;
  }

  TempDirectory directory_;
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::unique_ptr<Memory> device_memory_ = device_->allocate(kBytes, "a record");
  MoverWatch watch_{.granule = kPiece};
  WatchedMover mover_{watch_};
  Fence last_out_{Lane::kToHost, 0}, last_in_{Lane::kFromHost, 0};
};

TEST_F(OffloadStores, WhatIsWrittenComesBack) {
  for (const OffloadCapacity& capacity :
       {OffloadCapacity{6, 0}, OffloadCapacity{0, 6, directory_.path(), 3},
        OffloadCapacity{2, 4, directory_.path(), 3}}) {
    OffloadStore store(*device_, &mover_, records(), capacity);
    for (int round = 0; round < 3; ++round) {
      for (int place = 0; place < 6; ++place) write(store, place, 10 * round + place);
      for (int place = 5; place >= 0; --place) {
        EXPECT_TRUE(store.read_ahead(place));
        EXPECT_TRUE(reads(store, place, 10 * round + place)) << place;
      }
    }
    EXPECT_EQ(watch_.races, 0);
    EXPECT_EQ(store.moved().out, 3 * 6 * kBytes);
    EXPECT_EQ(store.moved().in, 3 * 6 * kBytes);
    EXPECT_EQ(store.moved().to_disk, 3 * capacity.disk_records * kBytes);
    EXPECT_EQ(store.moved().from_disk, 3 * capacity.disk_records * kBytes);
    mover_.finish();
    store.finish();
  }
}

TEST_F(OffloadStores, HostMemoryIsTakenBeforeTheDisk) {
  OffloadStore store(*device_, &mover_, records(), {2, 2, directory_.path(), 3});
  EXPECT_EQ(store.take(), 0);
  EXPECT_EQ(store.take(), 1);
  EXPECT_EQ(store.take(), 2);
  store.give(1);
  store.give(0);
  EXPECT_EQ(store.take(), 0);
  EXPECT_EQ(store.take(), 1);
  EXPECT_EQ(store.take(), 3);
  EXPECT_FALSE(store.has_free());
  EXPECT_THROW(store.take(), InternalError);
}

TEST_F(OffloadStores, TheHostWritesAndLooks) {
  OffloadStore store(*device_, &mover_, records(), {2, 5, directory_.path(), 3});
  for (int place = 0; place < 7; ++place) {
    std::memset(store.begin_host_write(place), place + 1, kBytes);
    store.end_host_write(place);
  }
  for (int round = 0; round < 2; ++round) {
    for (int place = 0; place < 7; ++place)
      for (int again = 0; again < 2; ++again) {
        const std::byte* const data = store.look_at(place);
        EXPECT_EQ(data[0], static_cast<std::byte>(place + 1));
        EXPECT_EQ(data[kBytes - 1], static_cast<std::byte>(place + 1));
      }
    store.drop_read_ahead();
  }
}

// The last record may be shorter in host memory, and longer on disk.
TEST_F(OffloadStores, RecordsAreAsLongAsTheyAre) {
  OffloadRecords odd = records();
  odd.bytes = 1000;
  odd.disk_bytes = 4096;
  odd.total_bytes = 2 * odd.bytes + 100;
  const std::int64_t before = device_->allocated_bytes();
  {
    const OffloadStore host(*device_, &mover_, odd, {3, 0});
    EXPECT_EQ(device_->allocated_bytes() - before, 2100);
  }
  OffloadStore disk(*device_, &mover_, odd, {1, 2, directory_.path(), 3});
  EXPECT_EQ(device_->allocated_bytes() - before, 1000 + 3 * 4096);
  for (int place = 0; place < 3; ++place) {
    std::memset(disk.begin_host_write(place), place + 1, 1000);
    disk.end_host_write(place);
  }
  for (int place = 0; place < 3; ++place)
    EXPECT_EQ(disk.look_at(place)[999], static_cast<std::byte>(place + 1));
}

TEST_F(OffloadStores, NothingToOffload) {
  OffloadStore store(*device_, nullptr, records(), {});
  EXPECT_FALSE(store.has_free());
  EXPECT_NO_THROW(store.finish());
  EXPECT_THROW(OffloadStore(*device_, nullptr, records(), {1, 0}), InternalError);
}

}  // namespace
}  // namespace longstride
