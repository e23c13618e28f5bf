// The device of recording passes: unlimited memory, none of which can be accessed.
#include <utility>

#include "base/error.h"
#include "device/device.h"

namespace longstride {
namespace {

class ShapesMemory final : public Memory {
 public:
  explicit ShapesMemory(std::int64_t bytes) : bytes_(bytes) {}
  std::byte* data() const override { return nullptr; }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
};

class ShapesDevice final : public Device {
 public:
  explicit ShapesDevice(DeviceKind runs_on, AbsentMachine machine = {})
      : stream_(DeviceKind::kShapes, runs_on), machine_(std::move(machine)) {}
  DeviceKind kind() const override { return DeviceKind::kShapes; }
  DeviceKind runs_on() const override { return stream_.runs_on(); }
  bool computes_in_bf16() const override { return runs_on() == DeviceKind::kCuda; }
  std::string name() const override { return machine_.device; }
  Stream& stream() override { return stream_; }
  std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) override {
    LS_CHECK(bytes >= 0, "{} bytes for {}", bytes, what);
    return std::make_unique<ShapesMemory>(bytes);
  }
  std::unique_ptr<Mover> make_mover() override { return nullptr; }
  void copy_to_host(void*, const void*, std::int64_t bytes) override {
    LS_CHECK(false, "{} bytes read from a device of shapes, which holds no values", bytes);
  }
  // A recording pass does not read the data.
  void copy_to_host_later(void*, const void*, std::int64_t) override {}
  ResultFence fetch_result(void*, const void*, std::int64_t) override { return {}; }
  void copy_from_host(void*, const void*, std::int64_t) override {}
  void zero(void*, std::int64_t) override {}
  std::int64_t allocated_bytes() const override { return 0; }
  std::int64_t available_bytes() const override { return machine_.device_bytes; }
  std::int64_t available_host_bytes() const override { return machine_.host_bytes; }

 private:
  Stream stream_;
  AbsentMachine machine_;
};

}  // namespace

Device& shapes_device(DeviceKind runs_on) {
  static ShapesDevice for_cpu(DeviceKind::kCpu), for_cuda(DeviceKind::kCuda);
  return runs_on == DeviceKind::kCuda ? for_cuda : for_cpu;
}

std::unique_ptr<Device> make_shapes_device(DeviceKind runs_on, const AbsentMachine& machine) {
  return std::make_unique<ShapesDevice>(runs_on, machine);
}

}  // namespace longstride
