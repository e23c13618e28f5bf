// A CPU device whose copies are checked and delayed.
#pragma once

#include <functional>
#include <utility>

#include "device/device.h"
#include "tests/pages/watched_mover.h"

namespace longstride {

class WatchedDevice final : public Device {
 public:
  DeviceKind kind() const override { return cpu_->kind(); }
  std::string name() const override { return cpu_->name(); }
  Stream& stream() override { return cpu_->stream(); }
  std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) override {
    return cpu_->allocate(bytes, what);
  }
  std::unique_ptr<Mover> make_mover() override {
    auto mover = std::make_unique<WatchedMover>(watch);
    last_mover = mover.get();
    if (change_mover) return change_mover(std::move(mover));
    return mover;
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    cpu_->copy_to_host(host, device, bytes);
  }
  void copy_to_host_later(void* host, const void* device, std::int64_t bytes) override {
    cpu_->copy_to_host_later(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    cpu_->copy_from_host(device, host, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { cpu_->zero(device, bytes); }
  std::int64_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  std::int64_t available_bytes() const override { return cpu_->available_bytes(); }
  bool shares_host_memory() const override { return !has_own_memory; }

  MoverWatch watch;
  WatchedMover* last_mover = nullptr;
  std::function<std::unique_ptr<Mover>(std::unique_ptr<Mover>)> change_mover;
  bool has_own_memory = false;  // as it says

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device();
};

}  // namespace longstride
