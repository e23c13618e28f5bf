#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "device/device.h"
#include "device/why_no_cuda.h"

namespace longstride {

void Stream::record_elapsed(double* into) {
  const auto now = std::chrono::steady_clock::now();
  if (into != nullptr) *into += std::chrono::duration<double>(now - last_recorded_).count();
  last_recorded_ = now;
}

ResultFence Device::fetch_result(void* host, const void* device, std::int64_t bytes) {
  LS_CHECK(bytes >= 0 && bytes <= kMostResultBytes, "a result of {} bytes, and {} at most", bytes,
           kMostResultBytes);
  copy_to_host(host, device, bytes);
  return {};
}

bool cuda_is_available() { return why_no_cuda().empty(); }

std::unique_ptr<Device> make_device(const std::string& name, int index) {
  if (name == "cpu") return make_cpu_device();
  if (name == "cuda") return make_cuda_device(index);
  if (name == "auto") {
    const std::string obstacle = why_no_cuda();
    if (obstacle.empty()) return make_cuda_device(index);
    static std::once_flag said;
    std::call_once(said, [&] { log_info("device auto is the CPU: {}", obstacle); });
    return make_cpu_device();
  }
  throw Error(fmt::format("unknown device '{}'", name), "devices are cpu, cuda and auto");
}

}  // namespace longstride
