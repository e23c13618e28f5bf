#include "observe/cpu_time.h"

#include <ctime>

namespace longstride {
namespace {

double seconds(clockid_t clock) {
  timespec t = {};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

CpuTime cpu_time() { return {seconds(CLOCK_PROCESS_CPUTIME_ID), seconds(CLOCK_THREAD_CPUTIME_ID)}; }

}  // namespace longstride
