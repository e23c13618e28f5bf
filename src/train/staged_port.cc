#include "train/staged_port.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "base/trace_spans.h"
#include "ops/elementwise.h"

namespace longstride {
namespace {

// Of the device's buffer for what leaves: its old tensor has been copied.
const WaitSite kLeaveAfterCopy{"messages/leave-after-copy"};
const WaitSite kCopyAfterLeave{"messages/copy-after-leave"};  // the tensor is in it
const WaitSite kSendAfterCopy{"messages/send-after-copy"};    // the pinned buffer is filled
// Of the device's buffer for what comes: its old tensor has been taken.
const WaitSite kCopyAfterTake{"messages/copy-after-take"};
const WaitSite kTakeAfterCopy{"messages/take-after-copy"};        // the tensor is in it
const WaitSite kReceiveAfterCopy{"messages/receive-after-copy"};  // the pinned buffer is read

constexpr std::int64_t kPortAlignment = 256;

std::int64_t port_room(std::int64_t bytes) {
  return (bytes + kPortAlignment - 1) / kPortAlignment * kPortAlignment;
}

constexpr std::int64_t kPinnedBuffers = MessagePort::kComing + MessagePort::kLeaving,
                       kDeviceBuffers = 2;

}  // namespace

PortBytes StagedPort::bytes(std::int64_t most_bytes) {
  return {kPinnedBuffers * port_room(most_bytes), kDeviceBuffers * port_room(most_bytes)};
}

StagedPort::StagedPort(Device& device, comm::Link& link, std::int64_t most_bytes)
    : device_(device),
      link_(link),
      mover_(device.make_mover()),
      room_(port_room(most_bytes)),
      host_memory_(device.allocate_host(kPinnedBuffers * room_, room_, "messages")),
      device_memory_(device.allocate(kDeviceBuffers * room_, "messages")) {
  host_memory_->prepare(0, host_memory_->bytes());
  std::byte* next = host_memory_->data();
  for (Buffer& buffer : coming_) buffer.data = std::exchange(next, next + room_);
  for (Buffer& buffer : leaving_) buffer.data = std::exchange(next, next + room_);
  thread_ = start_thread([this] { run_jobs(); });
}

StagedPort::~StagedPort() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  thread_.join();
  // A step that ended by an exception leaves messages behind.
  const auto under_way = [](const Buffer& buffer) { return buffer.ticket.number != 0; };
  if (std::ranges::any_of(leaving_, under_way) || std::ranges::any_of(coming_, under_way))
    link_.abandon();
  finish_whatever_comes(*mover_);
}

void StagedPort::check_room(std::int64_t bytes) const {
  LS_CHECK(bytes <= room_, "{} bytes, room for {}", bytes, room_);
}

void StagedPort::start(Buffer& buffer, bool sends) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({&buffer, sends});
    buffer.job = ++jobs_given_;
  }
  given_.notify_one();
}

void StagedPort::start_receive(int rank, std::int64_t bytes) {
  check_room(bytes);
  LS_CHECK(receiving() < kComing, "{} messages are coming", receiving());
  Buffer& buffer = coming_[started_++ % kComing];
  buffer.rank = rank;
  buffer.bytes = bytes;
  start(buffer, false);
}

void StagedPort::take(View tensor) {
  Buffer& buffer = coming_[taken_ % kComing];
  LS_CHECK(receiving() > 0 && tensor.bytes() == buffer.bytes, "{} bytes of {} are taken",
           tensor.bytes(), buffer.bytes);
  wait(buffer);
  ++taken_;
  mover_->wait(Lane::kFromHost, taken_fence_, kCopyAfterTake);
  const Mover::Copy copy{arriving(), buffer.data, buffer.bytes};
  mover_->copy(Lane::kFromHost, {&copy, 1});
  buffer.fence = mover_->fence(Lane::kFromHost);
  mover_->wait(Lane::kCompute, buffer.fence, kTakeAfterCopy);
  mover_->computing_on(arriving(), buffer.bytes, false);
  ops::convert(device_.stream(), {View(arriving(), tensor.dtype(), tensor.shape()), tensor});
  taken_fence_ = mover_->fence(Lane::kCompute);
}

void StagedPort::send(int rank, ConstView tensor) {
  check_room(tensor.bytes());
  Buffer& buffer = leaving_[sent_++ % kLeaving];
  wait(buffer);
  buffer.rank = rank;
  buffer.bytes = tensor.bytes();
  mover_->wait(Lane::kCompute, departed_fence_, kLeaveAfterCopy);
  mover_->computing_on(departing(), buffer.bytes, true);
  ops::convert(device_.stream(), {tensor, View(departing(), tensor.dtype(), tensor.shape())});
  mover_->wait(Lane::kToHost, mover_->fence(Lane::kCompute), kCopyAfterLeave);
  const Mover::Copy copy{buffer.data, departing(), buffer.bytes};
  mover_->copy(Lane::kToHost, {&copy, 1});
  buffer.fence = departed_fence_ = mover_->fence(Lane::kToHost);
  start(buffer, true);
}

void StagedPort::finish() {
  flush();
  for (Buffer& buffer : leaving_) wait(buffer);
  for (; taken_ < started_; ++taken_)
    take_back(link_, std::exchange(coming_[taken_ % kComing].ticket, {}));
}

void StagedPort::wait_for_job(std::uint64_t job) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return error_ != nullptr || jobs_done_ >= job; });
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void StagedPort::wait(Buffer& buffer) {
  if (buffer.job == 0) return;
  const TraceSpan span(TraceTrack::kMessages, {.what = "wait for rank", .number = buffer.rank});
  wait_for_job(std::exchange(buffer.job, 0));
  try {
    link_.wait(std::exchange(buffer.ticket, {}));
  } catch (...) {
    // A job that failed has abandoned the link, and knows more.
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) std::rethrow_exception(error_);
    throw;
  }
}

void StagedPort::run_jobs() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = jobs_.front();
      jobs_.pop_front();
    }
    try {
      run_job(job);
      const std::lock_guard lock(mutex_);
      ++jobs_done_;
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      done_.notify_all();
      link_.abandon();  // or the step's thread would wait for a message that needs ours
      return;
    }
    done_.notify_all();
  }
}

void StagedPort::run_job(const Job& job) {
  Buffer& buffer = *job.buffer;
  constexpr comm::MemoryKind kKind = comm::MemoryKind::kPinned;
  mover_->wait_on_host(buffer.fence, job.sends ? kSendAfterCopy : kReceiveAfterCopy);
  buffer.ticket = job.sends ? link_.send(buffer.rank, {buffer.data, buffer.bytes, kKind})
                            : link_.receive(buffer.rank, {buffer.data, buffer.bytes, kKind});
}

}  // namespace longstride
