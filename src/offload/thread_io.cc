#include "offload/thread_io.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/system_calls.h"
#include "base/threads.h"

namespace longstride {
namespace {

constexpr int kThreads = 8;

class ThreadIo final : public BlockIo {
 public:
  ThreadIo(std::shared_ptr<OffloadFile> file, bool direct)
      : file_(std::move(file)), direct_(direct) {
    try {
      for (int i = 0; i < kThreads; ++i) threads_.push_back(start_thread([this] { run(); }));
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadIo() override { stop(); }

  void submit(const Request& request) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    asked_.notify_one();
  }

  void wait(std::vector<Result>& results) override {
    results.clear();
    std::unique_lock lock(mutex_);
    answered_.wait(lock, [&] { return woken_ || failure_ || !results_.empty(); });
    if (failure_) std::rethrow_exception(failure_);
    woken_ = false;
    results.swap(results_);
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    answered_.notify_one();
  }

  std::int64_t alignment() const override { return direct_ ? kDirectAlignment : 1; }
  std::string description() const override {
    return direct_ ? "threads, direct" : "threads, buffered";
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    asked_.notify_all();
    join_all(threads_);
  }

  // wait() rethrows an exception that ends a thread.
  void run() {
    try {
      serve();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      answered_.notify_one();
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      asked_.wait(lock, [&] { return stopping_ || !requests_.empty(); });
      if (stopping_) return;
      const Request request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const auto bytes = static_cast<std::size_t>(request.bytes);
      const int file = file_->descriptor();
      const ssize_t moved = retry_eintr([&] {
        return request.from != nullptr ? ::pwrite(file, request.from, bytes, request.offset)
                                       : ::pread(file, request.to, bytes, request.offset);
      });
      const std::int64_t result = moved < 0 ? -errno : moved;
      lock.lock();
      results_.push_back({request.tag, result});
      answered_.notify_one();
    }
  }

  std::shared_ptr<OffloadFile> file_;
  bool direct_;
  std::mutex mutex_;
  std::condition_variable asked_, answered_;
  std::deque<Request> requests_;
  std::vector<Result> results_;
  bool woken_ = false, stopping_ = false;
  std::exception_ptr failure_;  // of a thread
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockIo> make_thread_io(std::shared_ptr<OffloadFile> file, bool direct) {
  return std::make_unique<ThreadIo>(std::move(file), direct);
}

}  // namespace longstride
