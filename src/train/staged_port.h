// StagedPort: messages of a device with memory of its own, through pinned host memory, beside
// computing. The compute stream only copies within the device: a tensor that leaves into a buffer
// there, one that came out of another. The mover's lanes copy between those and the host.
//
//   tensor -> device buffer (compute) -> pinned buffer (kToHost) -> link
//   link -> pinned buffer -> device buffer (kFromHost) -> tensor (compute)
//
// A thread of its own starts sends once their copies are done, and receives once their buffers are
// free, so that the thread that runs the step need not wait for the device.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "device/mover.h"
#include "train/message_port.h"

namespace longstride {

class StagedPort final : public MessagePort {
 public:
  // Device and link outlive it.
  StagedPort(Device& device, comm::Link& link, std::int64_t most_bytes);
  StagedPort(const StagedPort&) = delete;
  StagedPort& operator=(const StagedPort&) = delete;
  ~StagedPort() override;
  static PortBytes bytes(std::int64_t most_bytes);

  void start_receive(int rank, std::int64_t bytes) override;
  void take(View tensor) override;
  std::int64_t receiving() const override { return static_cast<std::int64_t>(started_ - taken_); }
  void send(int rank, ConstView tensor) override;
  void flush() override { wait_for_job(jobs_given_); }
  void finish() override;

 private:
  struct Buffer {
    std::byte* data = nullptr;  // pinned
    int rank = 0;
    std::int64_t bytes = 0;
    Fence fence;            // after the copy into it or out of it
    std::uint64_t job = 0;  // that starts its message
    comm::Ticket ticket;    // set by that job
  };
  struct Job {
    Buffer* buffer = nullptr;
    bool sends = false;
  };
  std::byte* arriving() const { return device_memory_->data(); }
  std::byte* departing() const { return device_memory_->data() + room_; }
  void check_room(std::int64_t bytes) const;
  void start(Buffer& buffer, bool sends);
  // Until the message's job is done; then that its ticket is.
  void wait_for_job(std::uint64_t job);
  void wait(Buffer& buffer);
  // The jobs' thread.
  void run_jobs();
  void run_job(const Job& job);

  Device& device_;
  comm::Link& link_;
  std::unique_ptr<Mover> mover_;
  std::int64_t room_;  // of a buffer
  std::unique_ptr<Memory> host_memory_, device_memory_;
  std::array<Buffer, kComing> coming_;
  std::array<Buffer, kLeaving> leaving_;
  std::size_t started_ = 0, taken_ = 0, sent_ = 0;
  // When the device's buffers may be used again.
  Fence taken_fence_, departed_fence_;

  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<Job> jobs_;
  std::uint64_t jobs_given_ = 0, jobs_done_ = 0;
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace longstride
