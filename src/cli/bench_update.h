// bench step --update: optimizer updates after the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "train/engine.h"

namespace longstride::cli {

struct UpdateBench {
  std::int64_t updates = 0;
  std::string where = "device";  // or host, or disk: as `state` says
  StateOptions state = {};
  OptimizerConfig options = {};
  std::optional<std::int64_t> disk_bytes = {};  // at most
};

// Runs updates on the step's gradients: norm, clipping and AdamW, as in a training step's update.
// Changes the weights.
OrderedJson bench_update(Engine& engine, const UpdateBench& bench);

}  // namespace longstride::cli
