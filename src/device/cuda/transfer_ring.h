// Rings of pinned host memory, one of them mirrored in device memory: host data reaches the device
// in stream order, and the host does not wait. Not thread-safe: the stream's thread owns them.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace longstride::cuda {

// Pinned memory in parts that are filled one after another. A part is reused once the stream has
// passed the work that reads it.
class PinnedParts {
 public:
  static constexpr int kParts = 4;
  static constexpr std::int64_t kPartBytes = std::int64_t{8} << 20;

  explicit PinnedParts(cudaStream_t stream);
  PinnedParts(const PinnedParts&) = delete;
  PinnedParts& operator=(const PinnedParts&) = delete;
  ~PinnedParts();

  std::byte* data() const { return data_; }
  // The offset where `bytes`, at most a part, may be written. Work queued before the next call may
  // read them.
  std::int64_t reserve(std::int64_t bytes);

 private:
  cudaStream_t stream_;
  std::byte* data_ = nullptr;
  std::size_t part_ = 0;                    // the part being filled
  std::int64_t used_ = 0;                   // bytes of that part
  std::array<cudaEvent_t, kParts> left_{};  // per part: recorded when it was full
};

class TransferRing {
 public:
  explicit TransferRing(cudaStream_t stream);
  TransferRing(const TransferRing&) = delete;
  TransferRing& operator=(const TransferRing&) = delete;
  ~TransferRing();

  // A copy of `host` in device memory for the operations queued next: valid until kParts - 1 parts
  // of further small uploads, or kLarge - 1 large ones, have followed.
  const std::byte* upload(const void* host, std::int64_t bytes);
  // Copies to the caller's own device memory; any size.
  void copy_to(void* device, const void* host, std::int64_t bytes);

 private:
  // Larger uploads get buffers of their own, so that the lists of one call never fill the ring.
  static constexpr std::int64_t kLargeBytes = std::int64_t{1} << 20;
  static constexpr int kLarge = 16;
  struct LargeBuffer {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };
  const std::byte* upload_large(const void* host, std::int64_t bytes);

  cudaStream_t stream_;
  PinnedParts small_;                        // mirrored in device_ at the same offsets
  PinnedParts passing_;                      // for copies to memory outside the ring
  std::byte* device_ = nullptr;              // mirrors small_
  std::array<LargeBuffer, kLarge> large_{};  // used in turn, grown on demand
  std::size_t next_large_ = 0;
};

}  // namespace longstride::cuda
