// Which activations of recomputed chunks stay on the device, given the memory that is left for
// them: those first that take the longest to recompute per byte. The tensors of a layer save time
// independently of each other, and each is tiny beside the memory, so that is nearly the best
// choice.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "schedule/layout.h"
#include "schedule/numerics.h"
#include "schedule/retention.h"

namespace longstride {

// In FLOP/s. Only their ratio matters here.
struct RecomputeRates {
  double products = 1, attention = 1;
};

struct RetentionChoice {
  std::vector<Retention> across_episodes;  // as in ScheduleOptions
  std::int64_t bytes = 0;
  double saved_flops = 0;  // of recomputation
};

// For a sequence of one document. The last `keep_chunks` chunks are not recomputed and need
// nothing.
RetentionChoice choose_retention(const ModelConfig& config, const NumericsRecord& numerics,
                                 const SequenceLayout& layout, std::int64_t keep_chunks,
                                 std::int64_t bytes, const RecomputeRates& rates);

}  // namespace longstride
