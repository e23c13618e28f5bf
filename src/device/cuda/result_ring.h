// Small results in flight to the host, each in a slot of pinned memory with an event: the host can
// wait for one of them while the stream continues. Not thread-safe: the stream's thread owns it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/device.h"

namespace longstride::cuda {

class ResultRing {
 public:
  static constexpr std::uint64_t kSlots = 8;

  explicit ResultRing(cudaStream_t stream);
  ResultRing(const ResultRing&) = delete;
  ResultRing& operator=(const ResultRing&) = delete;
  ~ResultRing();

  // As in Device. If all slots are in use, waits for the oldest result and delivers it.
  ResultFence fetch(void* host, const void* device, std::int64_t bytes);
  bool has_passed(ResultFence fence);
  void wait_for(ResultFence fence);
  ResultFence last() const { return {last_}; }

 private:
  struct Slot {
    cudaEvent_t arrived = nullptr;
    void* host = nullptr;
    std::int64_t bytes = 0;
  };
  Slot& slot(std::uint64_t number) { return slots_[number % kSlots]; }
  std::byte* staged(std::uint64_t number) const {
    return memory_ + static_cast<std::int64_t>(number % kSlots) * Device::kMostResultBytes;
  }
  void deliver_next();  // requires that it has arrived

  cudaStream_t stream_;
  std::byte* memory_ = nullptr;
  std::array<Slot, kSlots> slots_{};
  std::uint64_t last_ = 0, delivered_ = 0;  // results are numbered from 1
};

}  // namespace longstride::cuda
