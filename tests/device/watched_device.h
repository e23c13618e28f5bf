// The CPU device with a mover that watches and dawdles.
#pragma once

#include "device/device.h"
#include "tests/pages/watched_mover.h"

namespace longstride {

class WatchedDevice final : public Device {
 public:
  explicit WatchedDevice(const MoverWatch& watch) : watch_(watch) {}
  const MoverWatch& watch() const { return watch_; }

  DeviceKind kind() const override { return device_->kind(); }
  std::string name() const override { return device_->name(); }
  Stream& stream() override { return device_->stream(); }
  std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) override {
    return device_->allocate(bytes, what);
  }
  std::unique_ptr<Mover> make_mover() override { return std::make_unique<WatchedMover>(watch_); }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    device_->copy_to_host(host, device, bytes);
  }
  void copy_to_host_later(void* host, const void* device, std::int64_t bytes) override {
    device_->copy_to_host_later(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    device_->copy_from_host(device, host, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { device_->zero(device, bytes); }
  std::int64_t allocated_bytes() const override { return device_->allocated_bytes(); }
  std::int64_t available_bytes() const override { return device_->available_bytes(); }

 private:
  std::unique_ptr<Device> device_ = make_cpu_device();
  MoverWatch watch_;
};

}  // namespace longstride
