// The stream of a CUDA device, as operations see it: the queue itself, small uploads that do not
// block, and storage for library handles.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "device/cuda/result_ring.h"
#include "device/cuda/transfer_ring.h"
#include "device/device.h"

namespace longstride::cuda {

// Per-stream state of operations (library handles, their workspaces), made at first use.
class StreamExtension {
 public:
  virtual ~StreamExtension() = default;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int multiprocessors);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override;

  // Waits for the queue, then delivers the data of copy_to_host_later and results(), and the times
  // of record_elapsed.
  void synchronize() override;
  void throttle() override;
  void record_elapsed(double* into) override;
  cudaStream_t handle() const { return handle_; }
  int multiprocessors() const { return multiprocessors_; }

  // A copy of host data in device memory, in stream order; `host` may change at once. Valid for
  // operations queued before the ring wraps around.
  template <class T>
  const T* upload(const T* host, std::int64_t count) {
    return static_cast<const T*>(upload_bytes(host, count * static_cast<std::int64_t>(sizeof(T))));
  }
  const void* upload_bytes(const void* host, std::int64_t bytes) {
    return ring_->upload(host, bytes);
  }
  // Copies host data to `device` in stream order without waiting; `host` may change at once.
  void copy_from_host(void* device, const void* host, std::int64_t bytes) {
    ring_->copy_to(device, host, bytes);
  }
  // `host` holds the data after the next synchronize().
  void copy_to_host_later(void* host, const void* device, std::int64_t bytes);

  ResultRing& results() { return *results_; }

  // The extension made by `make` at the first call. One type of extension per stream.
  StreamExtension& extension(const std::function<std::unique_ptr<StreamExtension>()>& make) {
    if (!extension_) extension_ = make();
    return *extension_;
  }

 private:
  struct Delivery {
    void* host;
    const std::byte* staged;
    std::int64_t bytes;
  };
  cudaStream_t handle_ = nullptr;
  int multiprocessors_;
  std::unique_ptr<TransferRing> ring_;
  std::unique_ptr<ResultRing> results_;
  std::byte* downloads_ = nullptr;  // pinned
  std::int64_t staged_ = 0;         // bytes of it awaiting delivery
  std::vector<Delivery> deliveries_;
  // A ring of events, one per throttle(): when it returns, all but the last three have passed.
  static constexpr std::size_t kPieces = 4;
  cudaEvent_t pieces_[kPieces] = {};
  std::size_t piece_ = 0;
  // Event i ends interval i, whose time goes to into_[i]. Interval 0 begins at `before_`, the end
  // of the last interval before the synchronization.
  static constexpr std::size_t kIntervals = 1024;
  std::vector<cudaEvent_t> interval_ends_;
  std::vector<double*> into_;
  cudaEvent_t before_ = nullptr;
  std::unique_ptr<StreamExtension> extension_;
};

// The CUDA stream behind `stream`, which must be one.
inline CudaStream& cuda_stream(Stream& stream) {
  LS_CHECK(stream.kind() == DeviceKind::kCuda, "not a CUDA stream");
  return static_cast<CudaStream&>(stream);
}

}  // namespace longstride::cuda
