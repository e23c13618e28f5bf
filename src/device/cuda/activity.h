// What the GPU did and when, by CUPTI, which comes with the CUDA toolkit and is opened when asked
// for.
#pragma once

#include <memory>

#include "device/device.h"

namespace longstride::cuda {

// Null where this build or this machine has no CUPTI.
std::unique_ptr<ActivityRecorder> record_activity();

}  // namespace longstride::cuda
