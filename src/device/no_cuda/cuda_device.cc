// Linked in place of cuda/ where the build has no CUDA.
#include "base/error.h"
#include "device/device.h"

namespace longstride {

std::unique_ptr<Device> make_cuda_device() {
  throw Error("this build has no CUDA", "run with --device cpu, or build longstride with CUDA");
}

bool cuda_is_available() { return false; }

}  // namespace longstride
