#include "ops/kernel_libraries.h"

#include "ops/cpu/blas.h"
#include "ops/cpu/small_product.h"

namespace longstride::ops {

std::string kernel_libraries(const Device& device) {
  return device.kind() == DeviceKind::kCuda
             ? cuda::kernel_libraries()
             : cpu::blas_description() + ", attention by " + cpu::small_product_kernels();
}

}  // namespace longstride::ops
