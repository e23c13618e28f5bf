#include "device/cuda/result_ring.h"

#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "device/cuda/check.h"

namespace longstride::cuda {

ResultRing::ResultRing(cudaStream_t stream) : stream_(stream) {
  LS_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&memory_), kSlots * Device::kMostResultBytes,
                        cudaHostAllocDefault));
  // Blocking sync: waits sleep instead of spinning.
  for (Slot& s : slots_)
    LS_CUDA(cudaEventCreateWithFlags(&s.arrived, cudaEventDisableTiming | cudaEventBlockingSync));
}

ResultRing::~ResultRing() {
  for (const Slot& s : slots_) cudaEventDestroy(s.arrived);
  cudaFreeHost(memory_);
}

ResultFence ResultRing::fetch(void* host, const void* device, std::int64_t bytes) {
  LS_CHECK(bytes >= 0 && bytes <= Device::kMostResultBytes, "a result of {} bytes, and {} at most",
           bytes, Device::kMostResultBytes);
  LS_CHECK(!in_parallel_for(), "one thread alone uses a device's stream");
  if (last_ >= kSlots) wait_for({last_ + 1 - kSlots});
  const std::uint64_t number = ++last_;
  Slot& s = slot(number);
  s.host = host;
  s.bytes = bytes;
  if (bytes > 0)
    LS_CUDA(cudaMemcpyAsync(staged(number), device, static_cast<std::size_t>(bytes),
                            cudaMemcpyDeviceToHost, stream_));
  LS_CUDA(cudaEventRecord(s.arrived, stream_));
  return {number};
}

void ResultRing::deliver_next() {
  const std::uint64_t number = ++delivered_;
  if (slot(number).bytes > 0)
    std::memcpy(slot(number).host, staged(number), static_cast<std::size_t>(slot(number).bytes));
}

bool ResultRing::has_passed(ResultFence fence) {
  for (; delivered_ < fence.number; deliver_next()) {
    const cudaError_t status = cudaEventQuery(slot(delivered_ + 1).arrived);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // "not ready" is not an error
      return false;
    }
    LS_CUDA(status);
  }
  return true;
}

void ResultRing::wait_for(ResultFence fence) {
  for (; delivered_ < fence.number; deliver_next())
    LS_CUDA(cudaEventSynchronize(slot(delivered_ + 1).arrived));
}

}  // namespace longstride::cuda
