#include "train/slice_capacity.h"

#include <algorithm>

namespace longstride {
namespace {

// Two thirds are for read-ahead: some slices are read from disk while others are written.
constexpr std::int64_t kDiskBuffers = 12;

}  // namespace

SliceCapacity slice_capacity(const StateSlices& slices, const StateOptions& options) {
  SliceCapacity result;
  OffloadRecords& records = result.records;
  records.bytes = slices.slice_bytes;
  // Alignment for direct I/O.
  records.disk_bytes =
      (slices.slice_bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  records.total_bytes = slices.bytes_of_first(slices.size());
  records.what = "slices of the optimizer's state";
  records.what_on_host = "the optimizer's state";
  OffloadCapacity& offload = result.offload;
  offload.disk_directory = options.disk_directory;
  offload.make_disk = options.make_disk;
  offload.host_records = slices.size();
  offload.disk_buffers = 0;
  if (options.place == StatePlace::kDisk && records.total_bytes > options.host_bytes) {
    const std::int64_t left = options.host_bytes - kDiskBuffers * records.disk_bytes;
    offload.host_records =
        std::clamp<std::int64_t>(left / slices.slice_bytes, 0, slices.size() - 1);
    offload.disk_records = slices.size() - offload.host_records;
    offload.disk_buffers = std::min(kDiskBuffers, 2 * offload.disk_records);
  }
  result.host_bytes =
      slices.bytes_of_first(offload.host_records) + offload.disk_buffers * records.disk_bytes;
  return result;
}

}  // namespace longstride
