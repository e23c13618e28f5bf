#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "base/error.h"
#include "base/threads.h"

namespace longstride {
namespace {

thread_local int slot_of_this_thread = 0;
thread_local bool inside_parallel_for = false;

int default_threads() {
  if (const char* text = std::getenv("LONGSTRIDE_THREADS")) {
    int n = 0;
    const char* end = text + std::strlen(text);
    const auto [last, error] = std::from_chars(text, end, n);
    if (error != std::errc() || last != end || n < 1 || n > 1024)
      throw Error(fmt::format("LONGSTRIDE_THREADS is '{}'", text),
                  "set it to a number from 1 to 1024, or unset it");
    warn_of_many_threads("LONGSTRIDE_THREADS", n);
    return n;
  }
  return usable_cores();
}

struct Job {
  std::int64_t n = 0;
  const std::function<void(std::int64_t)>* f = nullptr;
  std::atomic<std::int64_t> next{0};
  std::exception_ptr error;
  std::mutex error_lock;

  void work() {
    try {
      for (std::int64_t i = next++; i < n; i = next++) (*f)(i);
    } catch (...) {
      next = n;  // the others stop at their next index
      const std::scoped_lock hold(error_lock);
      if (!error) error = std::current_exception();
    }
  }
};

class Pool {
 public:
  explicit Pool(int threads) {
    try {
      for (int slot = 1; slot < threads; ++slot)
        workers_.push_back(start_thread([this, slot] { serve(slot); }));
    } catch (...) {
      stop();
      throw;
    }
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { stop(); }
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(Job& job) {
    {
      const std::scoped_lock hold(lock_);
      job_ = &job;
      busy_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    wake_.notify_all();
    job.work();
    std::unique_lock hold(lock_);
    done_.wait(hold, [this] { return busy_ == 0; });
    job_ = nullptr;
  }

 private:
  void stop() {
    {
      const std::scoped_lock hold(lock_);
      stop_ = true;
    }
    wake_.notify_all();
    join_all(workers_);
  }

  void serve(int slot) {
    slot_of_this_thread = slot;
    inside_parallel_for = true;
    std::uint64_t seen = 0;
    std::unique_lock hold(lock_);
    for (;;) {
      wake_.wait(hold, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      Job* job = job_;
      hold.unlock();
      job->work();
      hold.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex lock_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  int busy_ = 0;
  std::uint64_t generation_ = 0;
  bool stop_ = false;
};

// Callers from different threads take turns: the lock's holder owns the pool.
std::mutex pool_lock;
std::unique_ptr<Pool> pool;
std::atomic<int> wanted_threads{0};

}  // namespace

int thread_count() {
  if (wanted_threads == 0) wanted_threads = default_threads();
  return wanted_threads;
}

void set_thread_count(int n) {
  LS_CHECK(n >= 1, "{} threads", n);
  wanted_threads = n;
}

int thread_slot() { return slot_of_this_thread; }

bool in_parallel_for() { return inside_parallel_for; }

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& f) {
  LS_CHECK(!inside_parallel_for, "parallel_for inside parallel_for");
  if (n <= 0) return;
  const std::scoped_lock hold(pool_lock);
  if (!pool || pool->threads() != thread_count()) {
    pool.reset();
    pool = std::make_unique<Pool>(thread_count());
  }
  Job job;
  job.n = n;
  job.f = &f;
  inside_parallel_for = true;
  if (n == 1)
    job.work();
  else
    pool->run(job);
  inside_parallel_for = false;
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace longstride
