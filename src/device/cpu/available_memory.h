// How much more memory this process may use: what the machine has free, and what its cgroups leave.
#pragma once

#include <cstdint>
#include <filesystem>

namespace longstride {

// The least of MemAvailable and, for every memory cgroup (v1 or v2) this process is in, limit -
// usage, where page cache that can be dropped does not count as used. `root` is "/" except in
// tests. Never negative.
std::int64_t available_memory(const std::filesystem::path& root = "/");

// Anonymous memory of this process that is resident.
std::int64_t resident_anonymous_memory();

}  // namespace longstride
