#include "train/slice_store.h"

#include <algorithm>

namespace longstride {
namespace {

// Two thirds of them are read ahead: some slices come from the disk while others go to it.
constexpr std::int64_t kDiskBuffers = 12;
constexpr const char* kWhat = "slices of the optimizer's state";

std::unique_ptr<DiskQueue> make_queue(const SliceRoom& room, const StateOptions& options) {
  if (options.make_disk)
    return options.make_disk(options.disk_directory, room.disk_slices, room.block_bytes, kWhat);
  return std::make_unique<DiskQueue>(options.disk_directory, room.disk_slices, room.block_bytes,
                                     kWhat);
}

}  // namespace

SliceRoom slice_room(const StateSlices& slices, const StateOptions& options) {
  SliceRoom room;
  room.block_bytes =
      (slices.slice_bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  room.host_slices = slices.size();
  if (options.place == StatePlace::kDisk &&
      slices.bytes_of_first(slices.size()) > options.host_bytes) {
    const std::int64_t left = options.host_bytes - kDiskBuffers * room.block_bytes;
    room.host_slices = std::clamp<std::int64_t>(left / slices.slice_bytes, 0, slices.size() - 1);
    room.disk_slices = slices.size() - room.host_slices;
    room.disk_buffers = std::min(kDiskBuffers, 2 * room.disk_slices);
  }
  room.host_bytes = slices.bytes_of_first(room.host_slices) + room.disk_buffers * room.block_bytes;
  return room;
}

SliceStore::SliceStore(Device& device, Mover& mover, const StateSlices& slices,
                       const StateOptions& options)
    : slices_(slices), room_(slice_room(slices, options)) {
  // The disk first: where it refuses, little was lost.
  if (room_.disk_slices > 0)
    disk_ = std::make_unique<DiskBuffers>(device, mover, make_queue(room_, options),
                                          room_.block_bytes, room_.disk_buffers, kWhat);
  if (room_.host_slices > 0)
    host_ = device.allocate_host(slices.bytes_of_first(room_.host_slices), slices.slice_bytes,
                                 "the optimizer's state");
}

void SliceStore::prepare(std::int64_t slice) {
  if (in_memory(slice)) host_->prepare(slice * slices_.slice_bytes, slices_.bytes(slice));
}

void SliceStore::rewind() {
  looked_at_ = -1;
  for (std::int64_t b = 0; b < room_.disk_slices; ++b) disk_->drop(b);
}

void SliceStore::read_ahead(std::int64_t slice) {
  for (std::int64_t s = std::max(slice, room_.host_slices); s < slices_.size(); ++s)
    if (!disk_->read_ahead(block(s))) return;
}

const std::byte* SliceStore::begin_in(std::int64_t slice) {
  read_ahead(slice);
  return in_memory(slice) ? host_at(slice) : disk_->begin_read(block(slice));
}

void SliceStore::end_in(std::int64_t slice) {
  if (!in_memory(slice)) disk_->end_read(block(slice));
}

std::byte* SliceStore::begin_out(std::int64_t slice) {
  return in_memory(slice) ? host_at(slice) : disk_->begin_write(block(slice));
}

void SliceStore::end_out(std::int64_t slice) {
  if (!in_memory(slice)) disk_->end_write(block(slice));
}

const std::byte* SliceStore::look_at(std::int64_t slice) {
  if (in_memory(slice)) return host_at(slice);
  if (looked_at_ >= 0 && looked_at_ != slice) disk_->end_read(block(looked_at_));
  looked_at_ = -1;
  const std::byte* const data = begin_in(slice);
  looked_at_ = slice;
  return data;
}

}  // namespace longstride
