// Records GPU activity through CUPTI, which comes with the CUDA toolkit and is loaded on demand.
#pragma once

#include <memory>

#include "device/device.h"

namespace longstride::cuda {

// Null if this build or this machine has no CUPTI.
std::unique_ptr<ActivityRecorder> record_activity();

}  // namespace longstride::cuda
