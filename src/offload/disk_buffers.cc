#include "offload/disk_buffers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace longstride {

namespace {

const WaitSite kDiskWriteAfterCopy{"offload/disk-write-after-copy"};  // the data has arrived
const WaitSite kBufferAfterCopy{"offload/buffer-after-copy"};         // its old data has been read

}  // namespace

DiskBuffers::DiskBuffers(Device& device, Mover& mover, std::unique_ptr<DiskQueue> queue,
                         std::int64_t block_bytes, std::int64_t buffers, const std::string& what)
    : mover_(mover),
      block_bytes_(block_bytes),
      memory_(
          device.allocate_host(buffers * block_bytes, block_bytes, what + " on their way to disk")),
      buffers_(static_cast<std::size_t>(buffers)),
      most_ahead_(buffers * 2 / 3),
      queue_(std::move(queue)) {
  memory_->prepare(0, memory_->bytes());
}

DiskBuffers::~DiskBuffers() {
  finish_whatever_comes(mover_);  // the queue may be waiting for its copies
}

DiskBuffers::Buffer* DiskBuffers::reading(std::int64_t block) {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& b) {
    return b.state == State::kReading && b.block == block;
  });
  return found == buffers_.end() ? nullptr : &*found;
}

void DiskBuffers::settle() {
  for (Buffer& b : buffers_)
    if (b.state == State::kWriting && queue_->done(b.ticket)) b.state = State::kFree;
}

void DiskBuffers::wait(DiskQueue::Ticket ticket) {
  const auto begin = std::chrono::steady_clock::now();
  queue_->wait(ticket);
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

DiskBuffers::Buffer& DiskBuffers::take() {
  settle();
  Buffer* oldest = nullptr;
  for (const State state : {State::kFree, State::kWriting}) {
    for (Buffer& b : buffers_)
      if (b.state == state && (oldest == nullptr || b.since < oldest->since)) oldest = &b;
    if (oldest != nullptr) break;
  }
  LS_CHECK(oldest != nullptr, "{} buffers, {} read ahead", buffers_.size(), ahead_);
  if (oldest->state == State::kWriting) wait(oldest->ticket);
  mover_.wait_on_host(oldest->read, kBufferAfterCopy);
  *oldest = {.since = ++clock_};
  return *oldest;
}

std::byte* DiskBuffers::begin_write(std::int64_t block) {
  Buffer& buffer = take();
  buffer.state = State::kWriting;
  buffer.block = block;
  return data(buffer);
}

Fence DiskBuffers::end_write(std::int64_t block) {
  const auto latest =
      std::max_element(buffers_.begin(), buffers_.end(),
                       [](const Buffer& a, const Buffer& b) { return a.since < b.since; });
  LS_CHECK(latest->state == State::kWriting && latest->block == block, "block {} is not written",
           block);
  const Fence left = mover_.fence(Lane::kToHost);
  latest->ticket = queue_->write(block, data(*latest),
                                 [this, left] { mover_.wait_on_host(left, kDiskWriteAfterCopy); });
  return left;
}

void DiskBuffers::start_reading(Buffer& buffer, std::int64_t block) {
  buffer.state = State::kReading;
  buffer.block = block;
  buffer.ticket = queue_->read(block, data(buffer));
  ++ahead_;
}

bool DiskBuffers::read_ahead(std::int64_t block) {
  if (reading(block) != nullptr) return true;
  if (ahead_ >= most_ahead_) return false;
  start_reading(take(), block);
  return true;
}

std::byte* DiskBuffers::begin_read(std::int64_t block) {
  Buffer* buffer = reading(block);
  if (buffer == nullptr) {
    buffer = &take();
    start_reading(*buffer, block);
  }
  wait(buffer->ticket);
  return data(*buffer);
}

Fence DiskBuffers::end_read(std::int64_t block) {
  Buffer* const buffer = reading(block);
  LS_CHECK(buffer != nullptr, "block {} is not read", block);
  const Fence read = mover_.fence(Lane::kFromHost);
  *buffer = {.read = read, .since = ++clock_};
  --ahead_;
  return read;
}

void DiskBuffers::drop(std::int64_t block) {
  Buffer* const buffer = reading(block);
  if (buffer == nullptr) return;
  queue_->wait(buffer->ticket);
  *buffer = {.since = ++clock_};
  --ahead_;
}

void DiskBuffers::finish() {
  for (Buffer& b : buffers_) {
    if (b.state == State::kFree) continue;
    if (b.state == State::kReading) --ahead_;
    b.state = State::kFree;
    try {
      if (b.ticket != 0) queue_->wait(b.ticket);
    } catch (const Error&) {
      // Not needed: the error of a block that is needed is thrown where it is waited for.
    }
  }
}

}  // namespace longstride
