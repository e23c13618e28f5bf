// How much can be offloaded, and where to. Plain data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace longstride {

class DiskQueue;
// Arguments: the directory, the number of blocks, bytes per block, and the content's name for
// messages.
using MakeDiskQueue = std::function<std::unique_ptr<DiskQueue>(
    const std::filesystem::path&, std::int64_t, std::int64_t, const std::string&)>;

// The first records go to host memory, the others to disk.
struct OffloadCapacity {
  std::int64_t host_records = 0, disk_records = 0;
  std::filesystem::path disk_directory = {};
  std::int64_t disk_buffers = 12;     // records staged in host memory, to or from the disk
  MakeDiskQueue make_disk = nullptr;  // null: a queue in disk_directory
  std::int64_t records() const { return host_records + disk_records; }
  // Ignores make_disk.
  bool operator==(const OffloadCapacity& other) const {
    return host_records == other.host_records && disk_records == other.disk_records &&
           disk_directory == other.disk_directory && disk_buffers == other.disk_buffers;
  }
};

}  // namespace longstride
