// Work of others on a device: other libraries of this process may use it too.
#pragma once

#include "device/device.h"

namespace longstride {

// Waits until everything that this process has started on the device is done, whoever started it.
void wait_for_other_work(Device& device);

}  // namespace longstride
