// Linked instead of cuda/ in builds without CUDA.
#include "base/error.h"
#include "device/device.h"
#include "device/why_no_cuda.h"

namespace longstride {

std::unique_ptr<Device> make_cuda_device(int /*index*/) {
  throw Error(why_no_cuda(), "run with --device cpu, or build longstride with CUDA");
}

int cuda_device_count() { return 0; }

std::string why_no_cuda() { return "this build has no CUDA"; }

}  // namespace longstride
