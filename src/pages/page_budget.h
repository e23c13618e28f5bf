// Distributes the pages of a step over device, host and disk, from budgets alone.
#pragma once

#include <cstdint>
#include <filesystem>

#include "pages/page_needs.h"

namespace longstride {

// Bytes for pages on each tier; kAll: no limit.
struct PageBudget {
  static constexpr std::int64_t kAll = -1;
  std::int64_t device = kAll, host = kAll, disk = 0;
  std::filesystem::path disk_directory = {};
};

struct PageSpread {
  KvCapacity capacity;
  std::int64_t kv_bytes = 0, gradient_bytes = 0;  // on the device, of all pools
  std::int64_t host_bytes = 0, disk_bytes = 0;
};

// Every pool gets its largest working set, then enough for streaming; the rest of the device budget
// goes first to the smallest. With sparse layers it goes first to gradients that host memory cannot
// hold, since their gradients are never on disk, then to the other pools of sparse layers, K/V
// before gradients; and last to pools of windows, whose pages are accessed the least. Host memory
// is filled before the disk. Throws Error, with the numbers, if the budgets are too small.
PageSpread spread_pages(const SequenceLayout& layout, const StepSchedule& schedule,
                        const KvShape& shape, const PageBudget& budget);

}  // namespace longstride
