// Which activations of recomputed chunks are retained, given the memory that is left for them:
// those first that take the longest to recompute per byte, on the device and then in host memory.
// The tensors of a layer save time independently of each other, and each is tiny beside the memory,
// so that is nearly the best choice.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "schedule/layout.h"
#include "schedule/numerics.h"
#include "schedule/retention.h"

namespace longstride {

// In FLOP/s. Their ratio decides what is retained. The default is of an H200, Qwen2.5-7B shape,
// 128K tokens: 8.2 s of recomputation, 5.6 of them attention.
struct RecomputeRates {
  double products = 658e12, attention = 616e12;
  // Bytes/s to and from host memory. Activations take at most half of the time that a layer's
  // arithmetic hides; the rest is for pages.
  double copies = 50e9;
};

// What episodes may retain for their own backward pass, from `most` down: less takes less workspace
// and more arithmetic.
std::vector<Retention> choices_within_episode(Retention most);

// Bytes for activations.
struct RetentionRoom {
  std::int64_t device = 0, host = 0;
};

struct RetentionChoice {
  std::vector<Retention> across_episodes, offloaded;  // as in ScheduleOptions
  std::int64_t bytes = 0, host_bytes = 0;
  double saved_flops = 0, saved_seconds = 0;  // of recomputation
};

// For a sequence of one document. The last `keep_chunks` chunks are not recomputed and need
// nothing.
RetentionChoice choose_retention(const ModelConfig& config, const NumericsRecord& numerics,
                                 const SequenceLayout& layout, std::int64_t keep_chunks,
                                 const RetentionRoom& room, const RecomputeRates& rates);

}  // namespace longstride
