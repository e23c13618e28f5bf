// A thread that runs tasks one after another, in the order in which they were posted.
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
  // `failed` is called with what a task throws, on the worker's thread; it must not throw. Later
  // tasks still run. Throws Error if the system refuses to start a thread.
  explicit SerialWorker(std::function<void(const std::exception_ptr&)> failed);
  SerialWorker(const SerialWorker&) = delete;
  SerialWorker& operator=(const SerialWorker&) = delete;
  // Waits for the running task; drops those that have not begun.
  ~SerialWorker();

  // May be called from any thread.
  void post(std::function<void()> task);

 private:
  void run();

  std::function<void(const std::exception_ptr&)> failed_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace longstride
