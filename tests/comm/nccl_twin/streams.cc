#include "tests/comm/nccl_twin/streams.h"

#include <cstdint>
#include <utility>

#include "tests/comm/nccl_twin/twin.h"

namespace nccl_twin {

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !busy_; });
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() || ends_; });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    task();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

namespace {

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0, passed = 0;
};

Stream& stream_at(void* handle) { return *static_cast<Stream*>(handle); }
Event& event_at(void* handle) { return *static_cast<Event*>(handle); }

}  // namespace
}  // namespace nccl_twin

using nccl_twin::Event;
using nccl_twin::event_at;
using nccl_twin::Stream;
using nccl_twin::stream_at;

extern "C" {
void* twin_stream_create() { return new Stream; }
void twin_stream_destroy(void* stream) { delete &stream_at(stream); }
void twin_stream_synchronize(void* stream) { stream_at(stream).synchronize(); }
void twin_stream_run(void* stream, void (*function)(void*), void* argument) {
  stream_at(stream).add([function, argument] { function(argument); });
}
void twin_stream_wait(void* stream, void* handle) {
  Event& event = event_at(handle);
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(event.mutex);
    number = event.recorded;
  }
  stream_at(stream).add([&event, number] {
    std::unique_lock lock(event.mutex);
    event.changed.wait(lock, [&] { return event.passed >= number; });
  });
}
void* twin_event_create() { return new Event; }
void twin_event_destroy(void* event) { delete &event_at(event); }
void twin_event_record(void* handle, void* stream) {
  Event& event = event_at(handle);
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(event.mutex);
    number = ++event.recorded;
  }
  stream_at(stream).add([&event, number] {
    const std::lock_guard lock(event.mutex);
    event.passed = number;
    event.changed.notify_all();
  });
}
int twin_event_passed(void* handle) {
  Event& event = event_at(handle);
  const std::lock_guard lock(event.mutex);
  return event.passed == event.recorded ? 1 : 0;
}
}
