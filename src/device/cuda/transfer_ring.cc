#include "device/cuda/transfer_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "device/cuda/check.h"
#include "device/cuda/event_wait.h"

namespace longstride::cuda {

PinnedParts::PinnedParts(cudaStream_t stream) : stream_(stream) {
  LS_CUDA(
      cudaHostAlloc(reinterpret_cast<void**>(&data_), kParts * kPartBytes, cudaHostAllocDefault));
  for (cudaEvent_t& event : left_)
    LS_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

PinnedParts::~PinnedParts() {
  for (cudaEvent_t event : left_) cudaEventDestroy(event);
  cudaFreeHost(data_);
}

std::int64_t PinnedParts::reserve(std::int64_t bytes) {
  LS_CHECK(bytes >= 0 && bytes <= kPartBytes, "{} bytes at once through parts of {}", bytes,
           kPartBytes);
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

TransferRing::TransferRing(cudaStream_t stream)
    : stream_(stream), small_(stream), passing_(stream) {
  LS_CUDA(cudaMalloc(reinterpret_cast<void**>(&device_),
                     PinnedParts::kParts * PinnedParts::kPartBytes));
}

TransferRing::~TransferRing() {
  for (const LargeBuffer& buffer : large_) cudaFree(buffer.data);
  cudaFree(device_);
}

const std::byte* TransferRing::upload_large(const void* host, std::int64_t bytes) {
  LargeBuffer& buffer = large_[next_large_];
  next_large_ = (next_large_ + 1) % kLarge;
  if (buffer.bytes < bytes) {
    LS_CUDA(cudaFree(buffer.data));  // waits for work that uses it
    buffer = {};
    // Lists grow from chunk to chunk: rounding up avoids an allocation for each.
    const auto size = std::bit_ceil(static_cast<std::size_t>(bytes));
    LS_CUDA(cudaMalloc(reinterpret_cast<void**>(&buffer.data), size));
    buffer.bytes = static_cast<std::int64_t>(size);
  }
  copy_to(buffer.data, host, bytes);
  return buffer.data;
}

const std::byte* TransferRing::upload(const void* host, std::int64_t bytes) {
  if (bytes > kLargeBytes) return upload_large(host, bytes);
  const std::int64_t offset = small_.reserve(bytes);
  if (bytes == 0) return device_ + offset;
  std::memcpy(small_.data() + offset, host, static_cast<std::size_t>(bytes));
  LS_CUDA(cudaMemcpyAsync(device_ + offset, small_.data() + offset, static_cast<std::size_t>(bytes),
                          cudaMemcpyHostToDevice, stream_));
  return device_ + offset;
}

void TransferRing::copy_to(void* device, const void* host, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += PinnedParts::kPartBytes) {
    const std::int64_t n = std::min(PinnedParts::kPartBytes, bytes - done);
    std::byte* const staged = passing_.data() + passing_.reserve(n);
    std::memcpy(staged, static_cast<const std::byte*>(host) + done, static_cast<std::size_t>(n));
    LS_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, staged,
                            static_cast<std::size_t>(n), cudaMemcpyHostToDevice, stream_));
  }
}

}  // namespace longstride::cuda
