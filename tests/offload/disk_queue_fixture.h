// A queue on a chosen kind of I/O, blocks of distinguishable content, and I/O that fails as a test
// requires.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "offload/disk_queue.h"
#include "tests/data/temp_directory.h"

namespace longstride {

// I/O between a queue and its real I/O, used only on the queue's thread: data that the functions
// access is set before, or atomic.
class FaultyIo final : public BlockIo {
 public:
  struct Faults {
    std::function<void(Request&)> before = {};                // changes the request
    std::function<void(const Request&, Result&)> after = {};  // changes the result
  };
  FaultyIo(std::unique_ptr<BlockIo> io, Faults faults)
      : io_(std::move(io)), faults_(std::move(faults)) {}
  void submit(const Request& request) override {
    requests_[request.tag] = request;
    Request changed = request;
    if (faults_.before) faults_.before(changed);
    io_->submit(changed);
  }
  void wait(std::vector<Result>& results) override {
    io_->wait(results);
    for (Result& result : results)
      if (faults_.after) faults_.after(requests_.at(result.tag), result);
  }
  void wake() override { io_->wake(); }
  std::int64_t alignment() const override { return io_->alignment(); }
  std::string description() const override { return io_->description(); }

 private:
  std::unique_ptr<BlockIo> io_;
  Faults faults_;
  std::map<std::uint64_t, Request> requests_;
};

// A block in memory, aligned or deliberately not.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes, std::int64_t shift = 0)
      : memory_(aligned_memory(bytes + shift)), bytes_(bytes), shift_(shift) {
    std::memset(memory_.get(), 0, static_cast<std::size_t>(bytes + shift));
  }
  std::byte* data() const { return memory_.get() + shift_; }
  // Content differs between seeds and between positions.
  void fill(std::uint64_t seed) const {
    for (std::int64_t i = 0; i < bytes_; i += 8) {
      const std::uint64_t word = word_at(seed, i);
      std::memcpy(data() + i, &word, length(i));
    }
  }
  ::testing::AssertionResult holds(std::uint64_t seed) const {
    for (std::int64_t i = 0; i < bytes_; i += 8) {
      const std::uint64_t word = word_at(seed, i);
      if (std::memcmp(data() + i, &word, length(i)) != 0)
        return ::testing::AssertionFailure() << "at byte " << i << " it is not content " << seed;
    }
    return ::testing::AssertionSuccess();
  }

 private:
  std::size_t length(std::int64_t i) const {
    return static_cast<std::size_t>(std::min<std::int64_t>(8, bytes_ - i));
  }
  static std::uint64_t word_at(std::uint64_t seed, std::int64_t i) {
    const std::uint64_t mixed =
        (seed * 0x9e3779b97f4a7c15ull) ^ (static_cast<std::uint64_t>(i) * 0xd1342543de82ef95ull);
    return mixed ^ (mixed >> 29);
  }
  AlignedMemory memory_;
  std::int64_t bytes_, shift_;
};

// Null if this machine does not offer that kind; `why_not` then says why.
inline std::unique_ptr<DiskQueue> make_queue(IoKind kind, const std::filesystem::path& directory,
                                             std::int64_t blocks, std::int64_t block_bytes,
                                             std::string* why_not, FaultyIo::Faults faults = {}) {
  auto file = std::make_shared<OffloadFile>(directory, blocks * block_bytes, "the test's blocks");
  std::unique_ptr<BlockIo> io = make_block_io(kind, file, block_bytes, why_not);
  if (io == nullptr) return nullptr;
  io = std::make_unique<FaultyIo>(std::move(io), std::move(faults));
  return std::make_unique<DiskQueue>(OpenedIo{std::move(io), ""}, directory, blocks, block_bytes,
                                     "the test's pages");
}

class DiskKinds : public ::testing::TestWithParam<IoKind> {
 protected:
  static constexpr std::int64_t kBytes = 8192;
  // Skips the test if there is no such I/O: `queue_` is null then.
  void open(std::int64_t blocks, std::int64_t block_bytes = kBytes, FaultyIo::Faults faults = {}) {
    std::string why_not;
    queue_ =
        make_queue(GetParam(), directory_.path(), blocks, block_bytes, &why_not, std::move(faults));
    if (queue_ == nullptr) GTEST_SKIP() << why_not;
  }
  void write(std::int64_t block, std::uint64_t seed, std::int64_t bytes = kBytes) {
    const Buffer buffer(bytes);
    buffer.fill(seed);
    queue_->wait(queue_->write(block, buffer.data(), {}));
  }
  ::testing::AssertionResult reads(std::int64_t block, std::uint64_t seed,
                                   std::int64_t bytes = kBytes) {
    const Buffer buffer(bytes);
    queue_->wait(queue_->read(block, buffer.data()));
    return buffer.holds(seed);
  }

  TempDirectory directory_;
  std::unique_ptr<DiskQueue> queue_;
};

inline std::string kind_name(const ::testing::TestParamInfo<IoKind>& info) {
  return std::vector<std::string>{"UringDirect", "ThreadsDirect",
                                  "ThreadsBuffered"}[static_cast<std::size_t>(info.param)];
}
inline const auto kEveryKind =
    ::testing::Values(IoKind::kUringDirect, IoKind::kThreadsDirect, IoKind::kThreadsBuffered);

}  // namespace longstride
