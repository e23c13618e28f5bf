// A thread that runs what it is given, one after another, in that order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace longstride {

class SerialWorker {
 public:
  SerialWorker();
  SerialWorker(const SerialWorker&) = delete;
  SerialWorker& operator=(const SerialWorker&) = delete;
  // Waits for the task that runs; drops those that have not begun.
  ~SerialWorker();

  // From any thread. A task must not throw.
  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace longstride
