// A stage of a pipeline: neighbouring layers of a model that one process runs. What comes below its
// first layer is the model's embedding or another stage, and so above its last one.
#pragma once

#include <cstdint>

#include "schedule/head_share.h"

namespace longstride {

struct Stage {
  std::int64_t first_layer = 0;  // of the model: layers of a stage are counted from 0
  bool receives = false;         // a stage comes before it: its input is that one's output
  bool sends = false;            // a stage comes after it: there is no head here
  bool trains_below = false;     // a stage before it is trained, and so gets a gradient
  HeadShare heads = {};          // processes that run it together; a plan is made for rank 0
  bool operator==(const Stage&) const = default;
};

}  // namespace longstride
