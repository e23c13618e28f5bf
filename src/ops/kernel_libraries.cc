#include "ops/kernel_libraries.h"

#include "ops/cpu/blas.h"

namespace longstride::ops {

std::string kernel_libraries(const Device& device) {
  return device.kind() == DeviceKind::kCuda ? cuda::kernel_libraries() : cpu::blas_description();
}

}  // namespace longstride::ops
