// Where blocks of pages wait off the device: in host memory, and where that is full, in a file.
// Every page that comes back from the file is checked. Not thread-safe: the thread that runs the
// step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "pages/page_file.h"

namespace longstride {

struct AwayRoom {
  std::int64_t host_blocks = 0, disk_blocks = 0;
  std::filesystem::path disk_directory = {};
};

class AwayBlocks {
 public:
  AwayBlocks(Device& device, std::int64_t page_bytes, std::int64_t pages_per_block,
             const AwayRoom& room, const std::string& what);

  // A place for one block: in memory while there is one. The plan said how many are needed, so
  // none left is a broken invariant.
  std::int64_t take();
  void give(std::int64_t place);

  // `count` pages that lie one after another on the device, from `page` of the block on. In the
  // order of the stream; the host has them when write returns.
  void write(std::int64_t place, std::int64_t page, std::int64_t count, const std::byte* device);
  void read(std::int64_t place, std::int64_t page, std::int64_t count, std::byte* device);

  struct Moved {
    std::int64_t out = 0, in = 0;             // bytes that left the device and came back
    std::int64_t to_disk = 0, from_disk = 0;  // of them
  };
  const Moved& moved() const { return moved_; }

 private:
  bool in_memory(std::int64_t place) const { return place < room_.host_blocks; }
  std::int64_t file_offset(std::int64_t place, std::int64_t page) const {
    return (place - room_.host_blocks) * block_bytes() + page * page_bytes_;
  }
  std::int64_t block_bytes() const { return page_bytes_ * pages_per_block_; }
  std::uint64_t& checksum(std::int64_t place, std::int64_t page) {
    return checksums_[static_cast<std::size_t>((place - room_.host_blocks) * pages_per_block_ +
                                               page)];
  }

  Device& device_;
  std::int64_t page_bytes_, pages_per_block_;
  AwayRoom room_;
  std::string what_;
  std::unique_ptr<Memory> host_, bounce_;
  std::unique_ptr<PageFile> file_;
  std::vector<std::int64_t> free_;  // the first places last
  std::vector<std::uint64_t> checksums_;
  Moved moved_;
};

}  // namespace longstride
