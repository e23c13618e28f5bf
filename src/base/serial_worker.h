// A thread that runs what it is given, one after another, in that order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace longstride {

class SerialWorker {
 public:
  // `failed` gets what a task throws, on the worker's thread; it must not throw itself. Tasks after
  // that one run as before. Throws Error where the system gives no thread.
  explicit SerialWorker(std::function<void(const std::exception_ptr&)> failed);
  SerialWorker(const SerialWorker&) = delete;
  SerialWorker& operator=(const SerialWorker&) = delete;
  // Waits for the task that runs; drops those that have not begun.
  ~SerialWorker();

  // From any thread.
  void post(std::function<void()> task);

 private:
  void run();

  std::function<void(const std::exception_ptr&)> failed_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace longstride
