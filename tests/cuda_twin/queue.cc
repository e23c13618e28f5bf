#include "tests/cuda_twin/queue.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/cuda_twin/warp.h"

namespace longstride::twin {
namespace {

using Clock = std::chrono::steady_clock;

struct Mark {
  bool passed = false;
  Clock::time_point at;
};

struct Task {
  Work work;                      // or
  std::shared_ptr<Mark> to_pass;  // or
  std::shared_ptr<Mark> to_await;
};

struct StreamOfTwin {
  std::deque<Task> tasks;
  std::uint64_t weight = 1;  // 0: runs only if no other can
};

struct EventOfTwin {
  std::shared_ptr<Mark> mark;  // of the last record
};

struct State {
  std::mutex mutex;
  std::vector<StreamOfTwin*> streams;  // as they were made, so that a seed gives one order
  std::uint64_t random = 0;
  // The mood: some streams are slow, and the device is busy, or it keeps up with the host. It
  // changes after so many draws.
  std::uint64_t mood_left = 0, tasks_at_once = 0;
  cudaError_t fault = cudaSuccess;
  StreamOfTwin ordinary;  // the null stream
  State() {
    const char* const seed = std::getenv("LONGSTRIDE_TWIN_SEED");
    random = (seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1) * 0x9E3779B97F4A7C15ull;
    streams.push_back(&ordinary);
  }
};
State& state() {
  static State* const made = new State;
  return *made;
}

std::uint64_t next(State& s) {
  s.random = s.random * 6364136223846793005ull + 1442695040888963407ull;
  return s.random >> 33;
}

StreamOfTwin& of(cudaStream_t stream) {
  return stream == nullptr ? state().ordinary : *reinterpret_cast<StreamOfTwin*>(stream);
}
EventOfTwin& of(cudaEvent_t event) { return *reinterpret_cast<EventOfTwin*>(event); }

void note(State& s, cudaError_t status, const std::string& what) {
  std::fprintf(stderr, "CUDA twin: %s\n", what.c_str());
  if (s.fault == cudaSuccess) s.fault = status;
}

void change_mood(State& s) {
  if (s.mood_left-- > 0) return;
  s.mood_left = next(s) % 64;
  const std::uint64_t few[] = {0, 4, 1000};
  s.tasks_at_once = few[next(s) % 3];
  const std::uint64_t weights[] = {0, 0, 1, 8};
  for (StreamOfTwin* stream : s.streams) stream->weight = weights[next(s) % 4];
}

// Runs one task of a stream drawn at random; false if none can go on.
bool run_some(State& s) {
  change_mood(s);
  std::vector<StreamOfTwin*> ready, slow;
  for (StreamOfTwin* stream : s.streams)
    if (!stream->tasks.empty() &&
        (!stream->tasks.front().to_await || stream->tasks.front().to_await->passed)) {
      ready.insert(ready.end(), stream->weight, stream);
      if (stream->weight == 0) slow.push_back(stream);
    }
  if (ready.empty()) ready.swap(slow);
  if (ready.empty()) return false;
  StreamOfTwin& chosen = *ready[next(s) % ready.size()];
  const Task task = std::move(chosen.tasks.front());
  chosen.tasks.pop_front();
  if (task.to_pass) {
    task.to_pass->passed = true;
    task.to_pass->at = Clock::now();
  }
  if (task.work && s.fault == cudaSuccess) {
    try {
      task.work();
    } catch (const Fault& f) {
      note(s, cudaErrorIllegalAddress, f.what());
    }
  }
  return true;
}

template <class F>
void run_until(State& s, const F& done) {
  while (!done())
    if (!run_some(s)) {
      note(s, cudaErrorLaunchTimeout, "all streams wait for each other");
      std::abort();
    }
}

void add(State& s, cudaStream_t stream, Task task) {
  of(stream).tasks.push_back(std::move(task));
  change_mood(s);
  for (std::uint64_t n = s.tasks_at_once; n > 0 && run_some(s);) --n;
}

}  // namespace

cudaStream_t make_stream() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  auto* const made = new StreamOfTwin;
  s.streams.push_back(made);
  return reinterpret_cast<cudaStream_t>(made);
}

void end_stream(cudaStream_t stream) {
  wait_for_stream(stream);
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  std::erase(s.streams, &of(stream));
  delete &of(stream);
}

void enqueue(cudaStream_t stream, Work work) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  add(s, stream, {.work = std::move(work), .to_pass = nullptr, .to_await = nullptr});
}

void wait_for_stream(cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  run_until(s, [&] { return of(stream).tasks.empty(); });
}

void wait_for_all() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  run_until(s, [&] {
    for (const StreamOfTwin* stream : s.streams)
      if (!stream->tasks.empty()) return false;
    return true;
  });
}

cudaEvent_t make_event() { return reinterpret_cast<cudaEvent_t>(new EventOfTwin); }
void end_event(cudaEvent_t event) { delete &of(event); }

void record(cudaEvent_t event, cudaStream_t stream) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  of(event).mark = std::make_shared<Mark>();
  add(s, stream, {.work = nullptr, .to_pass = of(event).mark, .to_await = nullptr});
}

void let_wait(cudaStream_t stream, cudaEvent_t event) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (of(event).mark)
    add(s, stream, {.work = nullptr, .to_pass = nullptr, .to_await = of(event).mark});
}

bool has_passed(cudaEvent_t event) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (!of(event).mark || of(event).mark->passed) return true;
  run_some(s);
  return of(event).mark->passed;
}

void wait_for_event(cudaEvent_t event) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (const std::shared_ptr<Mark> mark = of(event).mark) run_until(s, [&] { return mark->passed; });
}

float elapsed(cudaEvent_t begin, cudaEvent_t end) {
  return std::chrono::duration<float, std::milli>(of(end).mark->at - of(begin).mark->at).count();
}

cudaError_t fault() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  return s.fault;
}

cudaError_t refuse(cudaError_t status, const std::string& what) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  std::fprintf(stderr, "CUDA twin: %s\n", what.c_str());
  return status;
}

std::uint64_t draw() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  return next(s);
}

}  // namespace longstride::twin
