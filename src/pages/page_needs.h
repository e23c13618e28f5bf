// What a step needs of its pools of pages, whatever the budgets.
#pragma once

#include <cstdint>
#include <vector>

#include "pages/kv_shape.h"
#include "schedule/step_schedule.h"

namespace longstride {

struct PoolNeeds {
  bool gradients = false;
  std::vector<std::int64_t> layers = {};
  std::int64_t page_bytes = 0;
  std::int64_t least = 0;  // pages of the largest working set
  std::int64_t most = 0;   // that exist at once
  bool sparse = false;     // some of its layers are
  bool windows = true;     // all of its layers have one

  // One working set is computed on, one is fetched, one is evicted: capacity beyond that only
  // saves copies.
  std::int64_t streaming() const { return least * 3 < most ? least * 3 : most; }
  std::int64_t bytes() const { return most * page_bytes; }
};

// Of all pools: of keys and values, then of gradients, each as pools_of has them.
std::vector<PoolNeeds> page_needs(const SequenceLayout& layout, const StepSchedule& schedule,
                                  const KvShape& shape);

// Pages that move together: dense layers access all pages of a chunk together, selected pages move
// one by one.
std::int64_t pages_per_group(const SequenceLayout& layout, const StepSchedule& schedule);

// Bytes of pages on the device: of the largest working sets, and enough to overlap copies with
// compute.
std::int64_t least_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                const KvShape& shape);
std::int64_t streaming_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                    const KvShape& shape);

// The wide copies that coded pages need.
WideCapacity wide_capacity(const SequenceLayout& layout, const StepSchedule& schedule,
                           const KvShape& shape);

}  // namespace longstride
