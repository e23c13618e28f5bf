// How much may be offloaded, and to where. Plain data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace longstride {

class DiskQueue;
// In a directory, so many blocks of so many bytes; for messages, what is in them.
using MakeDiskQueue = std::function<std::unique_ptr<DiskQueue>(
    const std::filesystem::path&, std::int64_t, std::int64_t, const std::string&)>;

// The first records are in host memory, the others on disk.
struct OffloadCapacity {
  std::int64_t host_records = 0, disk_records = 0;
  std::filesystem::path disk_directory = {};
  std::int64_t disk_buffers = 12;     // records in host memory, on their way to or from the disk
  MakeDiskQueue make_disk = nullptr;  // null: a queue in disk_directory
  std::int64_t records() const { return host_records + disk_records; }
  // But for make_disk.
  bool operator==(const OffloadCapacity& other) const {
    return host_records == other.host_records && disk_records == other.disk_records &&
           disk_directory == other.disk_directory && disk_buffers == other.disk_buffers;
  }
};

}  // namespace longstride
