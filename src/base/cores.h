// How many threads make sense here.
#pragma once

#include <cstdint>

namespace longstride {

// Cores this process may use: its affinity mask, cut down by a cgroup's CPU quota. At least 1.
int usable_cores();
// Logs a warning if `threads`, requested through `setting`, exceeds usable_cores().
void warn_of_many_threads(const char* setting, std::int64_t threads);

}  // namespace longstride
