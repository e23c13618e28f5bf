// Distributes the pages of a step over device, host and disk, from budgets alone.
#pragma once

#include <cstdint>
#include <filesystem>

#include "pages/kv_store.h"
#include "schedule/step_schedule.h"

namespace longstride {

// Bytes for pages on each tier; kAll: no limit.
struct PageBudget {
  static constexpr std::int64_t kAll = -1;
  std::int64_t device = kAll, host = kAll, disk = 0;
  std::filesystem::path disk_directory = {};
};

struct PageSpread {
  KvCapacity capacity;
  std::int64_t kv_bytes = 0, gradient_bytes = 0;  // on the device
  std::int64_t host_bytes = 0, disk_bytes = 0;
};

// Bytes of pages on the device. `least`: the largest working set. `streaming`: enough to overlap
// copies with compute.
std::int64_t streaming_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                    const KvShape& shape);
std::int64_t least_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                const KvShape& shape);

// The wide copies that coded pages need, whatever the budgets.
WideCapacity wide_capacity(const SequenceLayout& layout, const StepSchedule& schedule,
                           const KvShape& shape);

// K/V and gradients each get their largest working set, then enough for streaming; the rest of the
// device budget goes first to the smaller of the two. With sparse layers it goes first to gradients
// that host memory cannot hold, since their gradients are never on disk, then to K/V. Host memory
// is filled before the disk. Throws Error, with the numbers, if the budgets are too small.
PageSpread spread_pages(const SequenceLayout& layout, const StepSchedule& schedule,
                        const KvShape& shape, const PageBudget& budget);

}  // namespace longstride
