#include "pages/away_blocks.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

AwayBlocks::AwayBlocks(Device& device, Mover* mover, std::int64_t page_bytes,
                       std::int64_t pages_per_block, const AwayRoom& room, const std::string& what)
    : mover_(mover),
      page_bytes_(page_bytes),
      pages_per_block_(pages_per_block),
      room_(room),
      what_(what) {
  if (room.host_blocks > 0)
    host_ = device.allocate_host(room.host_blocks * block_bytes(), block_bytes(),
                                 what + " in host memory");
  if (room.disk_blocks > 0)
    disk_ = std::make_unique<DiskBuffers>(device, *mover, room.disk_directory, room.disk_blocks,
                                          block_bytes(), room.disk_buffers, what);
  for (std::int64_t place = room.blocks() - 1; place >= 0; --place) free_.push_back(place);
  marks_.resize(static_cast<std::size_t>(room.host_blocks));
  prepared_.resize(static_cast<std::size_t>(room.host_blocks));
  copies_.reserve(static_cast<std::size_t>(pages_per_block));
}

std::int64_t AwayBlocks::take() {
  LS_CHECK(!free_.empty(), "{}: all {} places are taken", what_, room_.blocks());
  const std::int64_t place = free_.back();
  free_.pop_back();
  return place;
}

void AwayBlocks::give(std::int64_t place) {
  if (!in_memory(place)) disk_->drop(place - room_.host_blocks);
  // The lowest place is taken next, so that memory is used before the disk.
  free_.insert(std::lower_bound(free_.begin(), free_.end(), place, std::greater<>()), place);
}

std::byte* AwayBlocks::host_at(std::int64_t place) {
  const auto i = static_cast<std::size_t>(place);
  if (!prepared_[i]) host_->prepare(place * block_bytes(), block_bytes());
  prepared_[i] = true;
  return host_->data() + place * block_bytes();
}

std::int64_t AwayBlocks::copy(Lane lane, std::byte* host, std::span<const PagePiece> pieces) {
  std::int64_t bytes = 0;
  copies_.clear();
  for (const PagePiece& p : pieces) {
    std::byte* const there = host + p.page * page_bytes_;
    copies_.push_back(lane == Lane::kToHost ? Mover::Copy{there, p.device, p.count * page_bytes_}
                                            : Mover::Copy{p.device, there, p.count * page_bytes_});
    bytes += copies_.back().bytes;
  }
  mover_->copy(lane, copies_);
  return bytes;
}

void AwayBlocks::write(std::int64_t place, std::span<const PagePiece> pieces) {
  if (in_memory(place)) {
    PageMarks& marks = marks_[static_cast<std::size_t>(place)];
    mover_->wait(Lane::kToHost, marks.of(Lane::kFromHost), WaitSite::kWriteAfterFetch);
    moved_.out += copy(Lane::kToHost, host_at(place), pieces);
    marks.set(mover_->mark(Lane::kToHost));
    return;
  }
  const std::int64_t block = place - room_.host_blocks;
  const std::int64_t bytes = copy(Lane::kToHost, disk_->begin_write(block), pieces);
  disk_->end_write(block);
  moved_.out += bytes;
  moved_.to_disk += bytes;
}

void AwayBlocks::read(std::int64_t place, std::span<const PagePiece> pieces) {
  if (in_memory(place)) {
    PageMarks& marks = marks_[static_cast<std::size_t>(place)];
    mover_->wait(Lane::kFromHost, marks.of(Lane::kToHost), WaitSite::kFetchAfterWrite);
    moved_.in += copy(Lane::kFromHost, host_at(place), pieces);
    marks.set(mover_->mark(Lane::kFromHost));
    return;
  }
  const std::int64_t block = place - room_.host_blocks;
  const std::int64_t bytes = copy(Lane::kFromHost, disk_->begin_read(block), pieces);
  disk_->end_read(block);
  moved_.in += bytes;
  moved_.from_disk += bytes;
}

bool AwayBlocks::read_ahead(std::int64_t place) {
  return in_memory(place) || disk_->read_ahead(place - room_.host_blocks);
}

void AwayBlocks::finish() {
  if (disk_) disk_->finish();
}

}  // namespace longstride
