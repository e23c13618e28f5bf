#include "base/process_memory.h"

#include <fstream>
#include <sstream>
#include <string>

namespace longstride {
namespace {

// A line of /proc/self/status such as "VmHWM:   1234 kB"; 0 if there is none.
std::int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(field + ":")) continue;
    std::istringstream rest(line.substr(field.size() + 1));
    std::int64_t kilobytes = 0;
    rest >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

std::int64_t resident_bytes() { return status_bytes("VmRSS"); }

std::int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

bool reset_peak_resident_bytes() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace longstride
