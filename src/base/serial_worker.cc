#include "base/serial_worker.h"

#include <utility>

#include "base/threads.h"

namespace longstride {

SerialWorker::SerialWorker(std::function<void(const std::exception_ptr&)> failed)
    : failed_(std::move(failed)), thread_(start_thread([this] { run(); })) {}

SerialWorker::~SerialWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_one();
  thread_.join();
}

void SerialWorker::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  given_.notify_one();
}

void SerialWorker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (...) {
      failed_(std::current_exception());
    }
    task = nullptr;  // destroys its captures without the lock
    lock.lock();
  }
}

}  // namespace longstride
