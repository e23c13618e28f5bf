// Where offloaded slices of the optimizer's state are kept: as many as fit in host memory, the
// others on disk. Each is a record of an OffloadStore.
#pragma once

#include <cstdint>

#include "offload/offload_store.h"
#include "train/optimizer_state.h"
#include "train/state_slices.h"

namespace longstride {

struct SliceCapacity {
  OffloadRecords records;
  OffloadCapacity offload;
  std::int64_t host_bytes = 0;  // including disk buffers
  std::int64_t disk_bytes() const { return offload.disk_records * records.disk_bytes; }
};

SliceCapacity slice_capacity(const StateSlices& slices, const StateOptions& options);

}  // namespace longstride
