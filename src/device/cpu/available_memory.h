// How much more memory this process may use, by the machine's free memory and its cgroup limits.
#pragma once

#include <cstdint>
#include <filesystem>

namespace longstride {

// The minimum of MemAvailable and, for every memory cgroup (v1 or v2) of this process, limit -
// usage; reclaimable page cache does not count as used. `root` is "/" except in tests. Never
// negative.
std::int64_t available_memory(const std::filesystem::path& root = "/");

// Resident anonymous memory of this process, in bytes.
std::int64_t resident_anonymous_memory();

}  // namespace longstride
