// The libraries and code paths that a device's operations use. Part of the numerics record, because
// other kernels add in another order.
#pragma once

#include <string>

#include "device/device.h"

namespace longstride::ops {

std::string kernel_libraries(const Device& device);

namespace cuda {
std::string kernel_libraries();
}

}  // namespace longstride::ops
