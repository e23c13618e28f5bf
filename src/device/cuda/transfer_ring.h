// Rings of pinned host memory, one of them with a device copy of equal size: host data reaches the
// device in stream order while the host goes on at once.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace longstride::cuda {

// Pinned memory in parts, which are filled one after another; a part is filled again when the
// stream has passed what used it.
class PinnedParts {
 public:
  static constexpr int kParts = 4;
  static constexpr std::int64_t kPartBytes = std::int64_t{8} << 20;

  explicit PinnedParts(cudaStream_t stream);
  PinnedParts(const PinnedParts&) = delete;
  PinnedParts& operator=(const PinnedParts&) = delete;
  ~PinnedParts();

  std::byte* data() const { return data_; }
  // Where `bytes`, at most a part, may be written; the stream's work until the next call may use
  // them.
  std::int64_t reserve(std::int64_t bytes);

 private:
  cudaStream_t stream_;
  std::byte* data_ = nullptr;
  std::size_t part_ = 0;                    // where the next data goes
  std::int64_t used_ = 0;                   // bytes of that part
  std::array<cudaEvent_t, kParts> left_{};  // recorded when it was left
};

class TransferRing {
 public:
  explicit TransferRing(cudaStream_t stream);
  TransferRing(const TransferRing&) = delete;
  TransferRing& operator=(const TransferRing&) = delete;
  ~TransferRing();

  // Device memory that holds a copy of `host` for the operations queued next: until kParts - 1
  // parts of further small uploads, or kLarge - 1 large ones, have gone by.
  const std::byte* upload(const void* host, std::int64_t bytes);
  // The same data to a place of the caller's; any size.
  void copy_to(void* device, const void* host, std::int64_t bytes);

 private:
  // More than this goes to a buffer of its own, so that the lists of one call never fill the ring.
  static constexpr std::int64_t kLargeBytes = std::int64_t{1} << 20;
  static constexpr int kLarge = 16;
  struct LargeBuffer {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };
  const std::byte* upload_large(const void* host, std::int64_t bytes);

  cudaStream_t stream_;
  PinnedParts small_;                        // with the same offsets on the device
  PinnedParts passing_;                      // for places that are not the ring's
  std::byte* device_ = nullptr;              // what small_ holds
  std::array<LargeBuffer, kLarge> large_{};  // taken in turn, grown when met
  std::size_t next_large_ = 0;
};

}  // namespace longstride::cuda
