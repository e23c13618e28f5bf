// Seconds of CPU time since the start.
#pragma once

namespace longstride {

struct CpuTime {
  double process_s = 0, thread_s = 0;  // of all threads; of the calling one
};
CpuTime cpu_time();

}  // namespace longstride
