#include "device/cuda/transfer_ring.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "device/cuda/check.h"
#include "device/cuda/event_wait.h"

namespace longstride::cuda {

TransferRing::TransferRing(cudaStream_t stream) : stream_(stream) {
  LS_CUDA(
      cudaHostAlloc(reinterpret_cast<void**>(&host_), kParts * kPartBytes, cudaHostAllocDefault));
  LS_CUDA(cudaMalloc(reinterpret_cast<void**>(&device_), kParts * kPartBytes));
  for (cudaEvent_t& event : left_)
    LS_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

TransferRing::~TransferRing() {
  for (cudaEvent_t event : left_) cudaEventDestroy(event);
  for (const LargeBuffer& buffer : large_) cudaFree(buffer.data);
  cudaFree(device_);
  cudaFreeHost(host_);
}

std::int64_t TransferRing::reserve(std::int64_t bytes) {
  LS_CHECK(bytes >= 0 && bytes <= kPartBytes, "{} bytes at once through a ring of parts of {}",
           bytes, kPartBytes);
  LS_CHECK(!in_parallel_for(), "one thread alone uses a device's stream");
  const std::int64_t aligned = (bytes + 255) / 256 * 256;
  if (used_ + aligned > kPartBytes) {
    LS_CUDA(cudaEventRecord(left_[part_], stream_));
    part_ = (part_ + 1) % kParts;
    used_ = 0;
    // An event never recorded counts as passed.
    wait_asleep(left_[part_]);
  }
  const std::int64_t offset = static_cast<std::int64_t>(part_) * kPartBytes + used_;
  used_ += aligned;
  return offset;
}

const std::byte* TransferRing::upload_large(const void* host, std::int64_t bytes) {
  LargeBuffer& buffer = large_[next_large_];
  next_large_ = (next_large_ + 1) % kLarge;
  if (buffer.bytes < bytes) {
    LS_CUDA(cudaFree(buffer.data));  // waits for work that uses it
    buffer = {};
    LS_CUDA(cudaMalloc(reinterpret_cast<void**>(&buffer.data), static_cast<std::size_t>(bytes)));
    buffer.bytes = bytes;
  }
  copy_to(buffer.data, host, bytes);
  return buffer.data;
}

const std::byte* TransferRing::upload(const void* host, std::int64_t bytes) {
  if (bytes > kLargeBytes) return upload_large(host, bytes);
  const std::int64_t offset = reserve(bytes);
  if (bytes == 0) return device_ + offset;
  std::memcpy(host_ + offset, host, static_cast<std::size_t>(bytes));
  LS_CUDA(cudaMemcpyAsync(device_ + offset, host_ + offset, static_cast<std::size_t>(bytes),
                          cudaMemcpyHostToDevice, stream_));
  return device_ + offset;
}

void TransferRing::copy_to(void* device, const void* host, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kPartBytes) {
    const std::int64_t n = std::min(kPartBytes, bytes - done), offset = reserve(n);
    std::memcpy(host_ + offset, static_cast<const std::byte*>(host) + done,
                static_cast<std::size_t>(n));
    LS_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, host_ + offset,
                            static_cast<std::size_t>(n), cudaMemcpyHostToDevice, stream_));
  }
}

}  // namespace longstride::cuda
