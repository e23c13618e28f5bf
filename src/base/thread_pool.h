// One pool of worker threads for the whole process.
//
// parallel_for(n, f) calls f(i) for every i in [0, n), on the pool and the calling thread, and
// returns when all are done. Work must be split into fixed sizes, never by the number of threads,
// so that results do not depend on it. Any thread may call it: callers take turns. Not reentrant: f
// must not call parallel_for. An exception in f is rethrown in the caller.
#pragma once

#include <cstdint>
#include <functional>

namespace longstride {

// Threads used by parallel_for, at least 1: LONGSTRIDE_THREADS, or what the machine and its cgroup
// allow.
int thread_count();
// For tests; takes effect at the next parallel_for. n >= 1.
void set_thread_count(int n);

// The calling thread's own slot in [0, thread_count()) during a parallel_for, for per-thread
// scratch.
int thread_slot();
// Whether the caller runs inside parallel_for, so that other threads may run the same code.
bool in_parallel_for();

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& f);

}  // namespace longstride
