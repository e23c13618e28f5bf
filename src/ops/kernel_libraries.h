// Which libraries and code paths a device's operations run through. Part of the numerics record:
// another kernel adds in another order.
#pragma once

#include <string>

#include "device/device.h"

namespace longstride::ops {

std::string kernel_libraries(const Device& device);

namespace cuda {
std::string kernel_libraries();
}

}  // namespace longstride::ops
