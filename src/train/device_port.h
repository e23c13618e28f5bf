// DevicePort: messages by a link that moves device memory (NCCL). A tensor that leaves is copied to
// a buffer on the device first, so that computing goes on before the receiver is ready; one that
// comes goes straight to its place.
//
// Receives are not started ahead: such a link cannot take them back after a stop, and it is fast
// enough. The device's stream waits for them, the host does not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "train/message_port.h"

namespace longstride {

class DevicePort final : public MessagePort {
 public:
  // Device and link outlive it.
  DevicePort(Device& device, comm::Link& link, std::int64_t most_bytes);
  DevicePort(const DevicePort&) = delete;
  DevicePort& operator=(const DevicePort&) = delete;
  ~DevicePort() override;
  static PortBytes bytes(std::int64_t most_bytes) { return {0, kLeaving * most_bytes}; }

  void start_receive(int rank, std::int64_t bytes) override;
  void take(View tensor) override;
  std::int64_t receiving() const override { return static_cast<std::int64_t>(started_ - taken_); }
  void send(int rank, ConstView tensor) override;
  void finish() override;

 private:
  struct Expected {
    int rank = 0;
    std::int64_t bytes = 0;
  };

  Device& device_;
  comm::Link& link_;
  std::int64_t room_;  // of a buffer
  std::unique_ptr<Memory> memory_;
  std::array<Expected, kComing> coming_;
  std::array<comm::Ticket, kLeaving> leaving_;
  std::size_t started_ = 0, taken_ = 0, sent_ = 0;
};

}  // namespace longstride
