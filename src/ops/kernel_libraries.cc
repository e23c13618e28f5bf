#include "ops/kernel_libraries.h"

#include "ops/cpu/blas.h"

namespace longstride::ops {

std::string kernel_libraries(const Device& device) {
  return device.kind() == DeviceKind::kCpu ? cpu::blas_description() : "none";
}

}  // namespace longstride::ops
