#include "offload/offload_store.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

const WaitSite kReadAfterWrite{"offload/read-after-write"};  // the record is complete
const WaitSite kWriteAfterRead{"offload/write-after-read"};  // the old record has been read

std::unique_ptr<DiskBuffers> make_disk(Device& device, Mover& mover, const OffloadRecords& records,
                                       const OffloadCapacity& capacity) {
  const std::int64_t blocks = capacity.disk_records,
                     bytes = records.disk_bytes > 0 ? records.disk_bytes : records.bytes;
  std::unique_ptr<DiskQueue> queue =
      capacity.make_disk
          ? capacity.make_disk(capacity.disk_directory, blocks, bytes, records.what)
          : std::make_unique<DiskQueue>(capacity.disk_directory, blocks, bytes, records.what);
  return std::make_unique<DiskBuffers>(device, mover, std::move(queue), bytes,
                                       capacity.disk_buffers, records.what);
}

}  // namespace

OffloadStore::OffloadStore(Device& device, Mover* mover, const OffloadRecords& records,
                           const OffloadCapacity& capacity)
    : mover_(mover), records_(records), capacity_(capacity) {
  LS_CHECK(mover != nullptr || capacity.records() == 0, "{}: {} records and no mover", records.what,
           capacity.records());
  if (records_.total_bytes == 0) records_.total_bytes = capacity.records() * records.bytes;
  // The disk first: if it refuses, no time was spent on host memory.
  if (capacity.disk_records > 0) disk_ = make_disk(device, *mover, records_, capacity);
  if (capacity.host_records > 0)
    host_ =
        device.allocate_host(std::min(capacity.host_records * records.bytes, records_.total_bytes),
                             records.bytes, records.what_on_host);
  for (std::int64_t place = 0; place < capacity.records(); ++place) free_.push_back(place);
  fences_.resize(static_cast<std::size_t>(capacity.host_records));
  prepared_.resize(static_cast<std::size_t>(capacity.host_records));
  copies_.reserve(static_cast<std::size_t>(records.most_pieces));
}

std::int64_t OffloadStore::take() {
  LS_CHECK(!free_.empty(), "{}: all {} places are taken", records_.what, capacity_.records());
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const std::int64_t place = free_.back();
  free_.pop_back();
  return place;
}

void OffloadStore::give(std::int64_t place) {
  if (!on_host(place)) disk_->drop(block(place));
  free_.push_back(place);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

std::byte* OffloadStore::host_at(std::int64_t place) {
  const auto i = static_cast<std::size_t>(place);
  const std::int64_t offset = place * records_.bytes;
  if (!prepared_[i]) host_->prepare(offset, std::min(records_.bytes, host_->bytes() - offset));
  prepared_[i] = true;
  return host_->data() + offset;
}

void OffloadStore::add_copies(Lane lane, std::byte* host, std::span<const OffloadPiece> pieces) {
  for (const OffloadPiece& p : pieces)
    copies_.push_back(lane == Lane::kToHost ? Mover::Copy{host + p.offset, p.device, p.bytes}
                                            : Mover::Copy{p.device, host + p.offset, p.bytes});
}

std::int64_t OffloadStore::copy(Lane lane, std::byte* host, std::span<const OffloadPiece> pieces) {
  copies_.clear();
  add_copies(lane, host, pieces);
  std::int64_t bytes = 0;
  for (const OffloadPiece& p : pieces) bytes += p.bytes;
  mover_->copy(lane, copies_);
  return bytes;
}

Fence OffloadStore::copy_all(Lane lane, std::span<const OffloadRecord> records) {
  const bool out = lane == Lane::kToHost;
  FenceSet before;
  copies_.clear();
  for (const OffloadRecord& record : records) {
    if (!on_host(record.place)) continue;
    before.join(fences_[static_cast<std::size_t>(record.place)]);
    add_copies(lane, host_at(record.place), record.pieces);
  }
  if (copies_.empty()) return {};
  if (out)
    mover_->wait(Lane::kToHost, before.of(Lane::kFromHost), kWriteAfterRead);
  else
    mover_->wait(Lane::kFromHost, before.of(Lane::kToHost), kReadAfterWrite);
  mover_->copy(lane, copies_);
  for (const Mover::Copy& c : copies_) (out ? moved_.out : moved_.in) += c.bytes;
  const Fence fence = mover_->fence(lane);
  for (const OffloadRecord& record : records)
    if (on_host(record.place)) fences_[static_cast<std::size_t>(record.place)].set(fence);
  return fence;
}

Fence OffloadStore::write(std::int64_t place, std::span<const OffloadPiece> pieces) {
  if (on_host(place)) {
    const OffloadRecord record{place, pieces};
    return copy_all(Lane::kToHost, {&record, 1});
  }
  const std::int64_t bytes = copy(Lane::kToHost, disk_->begin_write(block(place)), pieces);
  moved_.out += bytes;
  moved_.to_disk += bytes;
  return disk_->end_write(block(place));
}

Fence OffloadStore::read(std::int64_t place, std::span<const OffloadPiece> pieces) {
  if (on_host(place)) {
    const OffloadRecord record{place, pieces};
    return copy_all(Lane::kFromHost, {&record, 1});
  }
  const std::int64_t bytes = copy(Lane::kFromHost, disk_->begin_read(block(place)), pieces);
  moved_.in += bytes;
  moved_.from_disk += bytes;
  return disk_->end_read(block(place));
}

bool OffloadStore::read_ahead(std::int64_t place) {
  return on_host(place) || disk_->read_ahead(block(place));
}

void OffloadStore::read_ahead_from(std::int64_t place) {
  for (std::int64_t p = std::max(place, capacity_.host_records); p < capacity_.records(); ++p)
    if (!disk_->read_ahead(block(p))) return;
}

void OffloadStore::drop_read_ahead() {
  looked_at_ = -1;
  for (std::int64_t b = 0; b < capacity_.disk_records; ++b) disk_->drop(b);
}

std::byte* OffloadStore::begin_host_write(std::int64_t place) {
  return on_host(place) ? host_at(place) : disk_->begin_write(block(place));
}

void OffloadStore::end_host_write(std::int64_t place) {
  if (!on_host(place)) disk_->end_write(block(place));
}

const std::byte* OffloadStore::look_at(std::int64_t place) {
  if (on_host(place)) return host_at(place);
  if (looked_at_ >= 0 && looked_at_ != place) disk_->end_read(block(looked_at_));
  looked_at_ = -1;
  read_ahead_from(place);
  const std::byte* const data = disk_->begin_read(block(place));
  looked_at_ = place;
  return data;
}

void OffloadStore::finish() {
  if (disk_) disk_->finish();
}

}  // namespace longstride
