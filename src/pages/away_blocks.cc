#include "pages/away_blocks.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace longstride {

AwayBlocks::AwayBlocks(Device& device, std::int64_t page_bytes, std::int64_t pages_per_block,
                       const AwayRoom& room, const std::string& what)
    : device_(device),
      page_bytes_(page_bytes),
      pages_per_block_(pages_per_block),
      room_(room),
      what_(what) {
  const std::int64_t places = room.host_blocks + room.disk_blocks;
  if (room.host_blocks > 0)
    host_ = device.allocate_host(room.host_blocks * block_bytes(), block_bytes(),
                                 what + " in host memory");
  if (room.disk_blocks > 0) {
    bounce_ = device.allocate_host(block_bytes(), block_bytes(), what + " on their way to disk");
    file_ = std::make_unique<PageFile>(room.disk_directory, room.disk_blocks * block_bytes());
    checksums_.resize(static_cast<std::size_t>(room.disk_blocks * pages_per_block));
  }
  for (std::int64_t place = places - 1; place >= 0; --place) free_.push_back(place);
}

std::int64_t AwayBlocks::take() {
  LS_CHECK(!free_.empty(), "{}: all {} places are taken", what_,
           room_.host_blocks + room_.disk_blocks);
  const std::int64_t place = free_.back();
  free_.pop_back();
  return place;
}

void AwayBlocks::give(std::int64_t place) {
  // The lowest place is taken next, so that memory is used before the disk.
  free_.insert(std::lower_bound(free_.begin(), free_.end(), place, std::greater<>()), place);
}

void AwayBlocks::write(std::int64_t place, std::int64_t page, std::int64_t count,
                       const std::byte* device) {
  const std::int64_t bytes = count * page_bytes_;
  moved_.out += bytes;
  if (in_memory(place)) {
    device_.copy_to_host(host_->data() + place * block_bytes() + page * page_bytes_, device, bytes);
    return;
  }
  device_.copy_to_host(bounce_->data(), device, bytes);
  for (std::int64_t i = 0; i < count; ++i)
    checksum(place, page + i) =
        checksum_of_text({reinterpret_cast<const char*>(bounce_->data() + i * page_bytes_),
                          static_cast<std::size_t>(page_bytes_)});
  file_->write(bounce_->data(), bytes, file_offset(place, page));
  moved_.to_disk += bytes;
}

void AwayBlocks::read(std::int64_t place, std::int64_t page, std::int64_t count,
                      std::byte* device) {
  const std::int64_t bytes = count * page_bytes_;
  moved_.in += bytes;
  if (in_memory(place)) {
    device_.copy_from_host(device, host_->data() + place * block_bytes() + page * page_bytes_,
                           bytes);
    return;
  }
  file_->read(bounce_->data(), bytes, file_offset(place, page));
  for (std::int64_t i = 0; i < count; ++i)
    if (checksum(place, page + i) !=
        checksum_of_text({reinterpret_cast<const char*>(bounce_->data() + i * page_bytes_),
                          static_cast<std::size_t>(page_bytes_)}))
      throw Error(fmt::format("{}: a page came back from {} other than it was written", what_,
                              room_.disk_directory.string()),
                  "the disk of memory.disk_path is faulty: choose another and resume from the last "
                  "checkpoint");
  device_.copy_from_host(device, bounce_->data(), bytes);
  moved_.from_disk += bytes;
}

}  // namespace longstride
