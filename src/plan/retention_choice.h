// Which activations of recomputed chunks are retained, given the memory that is left for them on
// the device and in host memory. Those on the host must be copied beside the arithmetic of their
// own chunk and layer, so it suits places whose arithmetic is long; the device takes what cannot be
// hidden.
//
// Two choices are made, and the better one is taken: what takes longest to recompute per byte
// first, on the device and then in host memory; and the solution of a linear program
// (plan/retention_program.h).
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "plan/retention_program.h"
#include "schedule/head_share.h"
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

struct RetentionChoice {
  std::vector<Retention> across_episodes, offloaded;  // as in ScheduleOptions
  std::int64_t bytes = 0, host_bytes = 0;
  double saved_flops = 0, saved_seconds = 0;  // of recomputation
  double most_seconds = 0;                    // proven: no choice saves more
};

// For a sequence of one document. The last `keep_chunks` chunks are not recomputed and need
// nothing, and layers below the first trained one are not recomputed if its input is retained. For
// up to 32 places, (chunk, layer), with host memory the choice is the best one, if the
// search for it comes to an end; else it is within a few places of it, and more room saves more but
// for so much. No program is solved where greedy is within one tensor of the bound, as it always is
// without host memory, nor for more than 600 different places (300 chunks without windows): it
// would take too long.
RetentionChoice choose_retention(const ModelConfig& config, const NumericsRecord& numerics,
                                 const SequenceLayout& layout, std::int64_t keep_chunks,
                                 const RetentionRoom& room, const RecomputeRates& rates,
                                 std::int64_t first_trained_layer = 0, const HeadShare& heads = {});

}  // namespace longstride
