// How the pages of a step are spread over device, host and disk, from budgets alone.
#pragma once

#include <cstdint>
#include <filesystem>

#include "pages/kv_store.h"
#include "schedule/step_schedule.h"

namespace longstride {

// Bytes for pages on each tier; kAll: as many as there are.
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

// Bytes that the device must hold at least: what is computed on at once; and so many that copies
// can hide behind computing.
std::int64_t streaming_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                    const KvShape& shape);
std::int64_t least_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                const KvShape& shape);

// K/V and gradients get what is computed on at once, then what streaming takes; of the rest of the
// device first the kind that is less. Host memory is filled before the disk. Throws
// Error, with the numbers, where the budgets are too small.
PageSpread spread_pages(const SequenceLayout& layout, const StepSchedule& schedule,
                        const KvShape& shape, const PageBudget& budget);

}  // namespace longstride
