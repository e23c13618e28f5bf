#include "device/cpu/available_memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace longstride {
namespace {

namespace fs = std::filesystem;

// The number in a file that contains nothing else; none if the file is missing or says "max".
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream in(path);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return static_cast<std::int64_t>(
      std::min(value, static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())));
}

// The number after `key` in a file of lines "key number ...".
std::optional<std::int64_t> number_after(const fs::path& path, const std::string& key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string word;
    std::int64_t value = 0;
    if (words >> word >> value && word == key) return value;
  }
  return std::nullopt;
}

// Whether `word` is one of the words in a comma-separated list.
bool lists(const std::string& list, const std::string& word) {
  std::istringstream in(list);
  std::string item;
  while (std::getline(in, item, ',')) {
    if (item == word) return true;
  }
  return false;
}

// Bytes left in one cgroup; none if it has no limit.
std::optional<std::int64_t> left_in(const fs::path& group, const char* limit_file,
                                    const char* usage_file, const std::string& stat_prefix) {
  const auto limit = number_in(group / limit_file);
  const auto usage = number_in(group / usage_file);
  if (!limit || !usage) return std::nullopt;
  const fs::path stat = group / "memory.stat";
  const std::int64_t cache = number_after(stat, stat_prefix + "inactive_file").value_or(0) +
                             number_after(stat, stat_prefix + "active_file").value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *usage - cache));
}

// The minimum of the bytes left in `group` and its ancestors. Inside a container the path may not
// exist; then the container's own limits are at the mount point.
std::int64_t left_up_to(const fs::path& mount, const fs::path& group, const char* limit_file,
                        const char* usage_file, const std::string& stat_prefix) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  fs::path path = group.relative_path();
  while (true) {
    if (const auto left = left_in(mount / path, limit_file, usage_file, stat_prefix)) {
      least = std::min(least, *left);
    }
    if (path.empty()) return least;
    path = path.parent_path();
  }
}

}  // namespace

std::int64_t available_memory(const fs::path& root) {
  std::int64_t available;
  if (const auto kib = number_after(root / "proc/meminfo", "MemAvailable:")) {
    available = *kib * 1024;
  } else {
    available = static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }
  // Lines "id:controllers:path"; version 2 has id 0 and no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      available = std::min(
          available, left_up_to(root / "sys/fs/cgroup", group, "memory.max", "memory.current", ""));
    } else if (lists(controllers, "memory")) {
      available = std::min(available,
                           left_up_to(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_"));
    }
  }
  return available;
}

std::int64_t resident_anonymous_memory() {
  return number_after("/proc/self/status", "RssAnon:").value_or(0) * 1024;
}

}  // namespace longstride
