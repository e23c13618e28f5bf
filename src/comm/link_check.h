// Whether a link delivers the right bytes: every operation at one size. For `bench link` and tests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/link.h"
#include "device/device.h"

namespace longstride::comm {

// Where the buffers of a check are: in host memory, or in that of a device.
struct CheckMemory {
  MemoryKind kind = MemoryKind::kHost;
  Device* device = nullptr;
};
// One of them. Copies run in the order of the device's stream.
class CheckBuffer {
 public:
  CheckBuffer(const CheckMemory& memory, std::int64_t bytes);
  CheckBuffer(const CheckMemory& memory, const std::vector<std::byte>& content);
  CheckBuffer(CheckBuffer&&) = default;
  CheckBuffer(const CheckBuffer&) = delete;
  CheckBuffer& operator=(const CheckBuffer&) = delete;
  ~CheckBuffer() = default;
  std::int64_t bytes() const { return bytes_; }
  std::vector<std::byte> read() const;
  SendBuffer out() const { return {data_, bytes_, memory_.kind}; }
  ReceiveBuffer in() { return {data_, bytes_, memory_.kind}; }

 private:
  CheckMemory memory_;
  std::int64_t bytes_;
  std::vector<std::byte> host_;
  std::shared_ptr<Memory> on_device_;
  std::byte* data_;
};

// All ranks call it. `bytes` is the size of a message, and about what a rank sends and receives in
// one of the other operations, divided between the ranks unevenly. Throws Error naming the
// operation and both ranks if a byte is wrong.
void check_link(Link& link, std::int64_t bytes, const CheckMemory& memory = {});

}  // namespace longstride::comm
