#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/log.h"

namespace longstride {
namespace {

int count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (quota_file >> quota >> period && quota != "max" && period > 0)
    cores = std::min(cores,
                     std::max(1, static_cast<int>(std::strtod(quota.c_str(), nullptr) / period)));
  return std::max(1, cores);
}

}  // namespace

int usable_cores() {
  static const int cores = count_cores();
  return cores;
}

void warn_of_many_threads(const char* setting, std::int64_t threads) {
  if (threads > usable_cores())
    log_warning(
        "{} is {}, but this process may use {} core{} (by its affinity and cgroup): more threads "
        "than cores are slower",
        setting, threads, usable_cores(), usable_cores() == 1 ? "" : "s");
}

}  // namespace longstride
