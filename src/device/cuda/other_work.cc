#include "device/other_work.h"

#include <cuda_runtime.h>

#include "device/cuda/check.h"

namespace longstride {

void wait_for_other_work(Device& device) {
  if (device.kind() == DeviceKind::kCuda) LS_CUDA(cudaDeviceSynchronize());
}

}  // namespace longstride
