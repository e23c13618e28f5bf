#include "base/error.h"
#include "device/device.h"

namespace longstride {

void Stream::lap(double* into) {
  const auto now = std::chrono::steady_clock::now();
  if (into != nullptr) *into += std::chrono::duration<double>(now - last_lap_).count();
  last_lap_ = now;
}

std::unique_ptr<Device> make_device(const std::string& name) {
  if (name == "cpu") return make_cpu_device();
  if (name == "cuda") return make_cuda_device();
  if (name == "auto") return cuda_is_available() ? make_cuda_device() : make_cpu_device();
  throw Error(fmt::format("unknown device '{}'", name), "devices are cpu, cuda and auto");
}

}  // namespace longstride
