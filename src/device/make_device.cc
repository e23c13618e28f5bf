#include "base/error.h"
#include "device/device.h"

namespace longstride {

std::unique_ptr<Device> make_device(const std::string& name) {
  if (name == "cpu") return make_cpu_device();
  if (name == "cuda") return make_cuda_device();
  if (name == "auto") return cuda_is_available() ? make_cuda_device() : make_cpu_device();
  throw Error(fmt::format("unknown device '{}'", name), "devices are cpu, cuda and auto");
}

}  // namespace longstride
