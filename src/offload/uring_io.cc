#include "offload/uring_io.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/system_calls.h"

namespace longstride {
namespace {

class UringIo final : public BlockIo {
 public:
  UringIo(std::shared_ptr<OffloadFile> file, io_uring ring, int event)
      : file_(std::move(file)), ring_(ring), event_(event) {}
  ~UringIo() override {
    try {
      wake();  // completes the read of event_
      std::vector<Result> results;
      while (under_way_ > 0 || awaits_wake_) collect(results);
    } catch (const std::exception& e) {
      log_warning("requests to the disk could not be waited for: {}", e.what());
    }
    ::io_uring_queue_exit(&ring_);
    close_descriptor(event_);
  }

  void submit(const Request& request) override {
    io_uring_sqe* const entry = next_entry();
    const auto bytes = static_cast<unsigned>(request.bytes);
    const auto offset = static_cast<std::uint64_t>(request.offset);
    if (request.from != nullptr)
      ::io_uring_prep_write(entry, file_->descriptor(), request.from, bytes, offset);
    else
      ::io_uring_prep_read(entry, file_->descriptor(), request.to, bytes, offset);
    entry->user_data = request.tag;
    ++under_way_;
  }

  void wait(std::vector<Result>& results) override {
    if (!awaits_wake_) {
      io_uring_sqe* const entry = next_entry();
      ::io_uring_prep_read(entry, event_, &event_count_, sizeof event_count_, 0);
      entry->user_data = kWake;
      awaits_wake_ = true;
    }
    collect(results);
  }

  void wake() override {
    const std::uint64_t one = 1;
    const ssize_t written = retry_eintr([&] { return ::write(event_, &one, sizeof one); });
    LS_CHECK(written == sizeof one, "an eventfd took {} bytes", written);
  }

  std::int64_t alignment() const override { return kDirectAlignment; }
  std::string description() const override { return "io_uring, direct"; }

 private:
  static constexpr std::uint64_t kWake = ~std::uint64_t{0};

  io_uring_sqe* next_entry() {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    LS_CHECK(entry != nullptr, "{} requests are under way, more than agreed", under_way_);
    return entry;
  }

  void collect(std::vector<Result>& results) {
    results.clear();
    const int status = ::io_uring_submit_and_wait(&ring_, 1);
    if (status == -EAGAIN || status == -EBUSY)  // the kernel is short of memory
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    else
      LS_CHECK(status >= 0 || status == -EINTR, "io_uring failed with error {}", -status);
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) == 0) {
      if (entry->user_data == kWake) {
        awaits_wake_ = false;
      } else {
        results.push_back({entry->user_data, entry->res});
        --under_way_;
      }
      ::io_uring_cqe_seen(&ring_, entry);
    }
  }

  std::shared_ptr<OffloadFile> file_;
  io_uring ring_;
  int event_;  // wake() writes to it; wait() keeps a read of it in flight
  std::uint64_t event_count_ = 0;
  bool awaits_wake_ = false;
  int under_way_ = 0;
};

}  // namespace

std::unique_ptr<BlockIo> make_uring_io(std::shared_ptr<OffloadFile> file, int* error) {
  io_uring ring = {};
  const int status = ::io_uring_queue_init(2 * BlockIo::kMostRequests, &ring, 0);
  if (status < 0) {
    *error = -status;
    return nullptr;
  }
  const int event = ::eventfd(0, EFD_CLOEXEC);
  if (event < 0) {
    *error = errno;
    ::io_uring_queue_exit(&ring);
    return nullptr;
  }
  return std::make_unique<UringIo>(std::move(file), ring, event);
}

}  // namespace longstride
