#include "device/cuda/cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/cuda/check.h"
#include "device/cuda/event_wait.h"

namespace longstride::cuda {
namespace {

constexpr std::int64_t kDownloadBytes = std::int64_t{16} << 20;

}  // namespace

CudaStream::CudaStream(int multiprocessors)
    : Stream(DeviceKind::kCuda), multiprocessors_(multiprocessors) {
  LS_CUDA(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
  ring_ = std::make_unique<TransferRing>(handle_);
  results_ = std::make_unique<ResultRing>(handle_);
  LS_CUDA(
      cudaHostAlloc(reinterpret_cast<void**>(&downloads_), kDownloadBytes, cudaHostAllocDefault));
  deliveries_.reserve(4096);
  for (cudaEvent_t& event : pieces_)
    LS_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  interval_ends_.resize(kIntervals);
  into_.reserve(kIntervals);
  for (cudaEvent_t& event : interval_ends_) LS_CUDA(cudaEventCreate(&event));
  LS_CUDA(cudaEventCreate(&before_));
  LS_CUDA(cudaEventRecord(before_, handle_));
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(handle_);
  extension_.reset();
  results_.reset();
  ring_.reset();
  cudaFreeHost(downloads_);
  for (cudaEvent_t event : pieces_) cudaEventDestroy(event);
  for (cudaEvent_t event : interval_ends_) cudaEventDestroy(event);
  cudaEventDestroy(before_);
  cudaStreamDestroy(handle_);
}

void CudaStream::synchronize() {
  LS_CUDA(cudaStreamSynchronize(handle_));
  for (const Delivery& d : deliveries_)
    std::memcpy(d.host, d.staged, static_cast<std::size_t>(d.bytes));
  deliveries_.clear();
  staged_ = 0;
  results_->wait_for(results_->last());
  if (into_.empty()) return;
  for (std::size_t i = 0; i < into_.size(); ++i) {
    float milliseconds = 0;
    LS_CUDA(cudaEventElapsedTime(&milliseconds, i == 0 ? before_ : interval_ends_[i - 1],
                                 interval_ends_[i]));
    if (into_[i] != nullptr) *into_[i] += static_cast<double>(milliseconds) * 1e-3;
  }
  std::swap(before_, interval_ends_[into_.size() - 1]);
  into_.clear();
}

void CudaStream::throttle() {
  LS_CUDA(cudaEventRecord(pieces_[piece_], handle_));
  piece_ = (piece_ + 1) % kPieces;
  wait_asleep(pieces_[piece_]);  // an event that was never recorded counts as passed
}

void CudaStream::record_elapsed(double* into) {
  if (into_.size() == kIntervals) synchronize();
  LS_CUDA(cudaEventRecord(interval_ends_[into_.size()], handle_));
  into_.push_back(into);
}

void CudaStream::copy_to_host_later(void* host, const void* device, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes;) {
    if (staged_ == kDownloadBytes || deliveries_.size() == deliveries_.capacity()) synchronize();
    const std::int64_t n = std::min(bytes - done, kDownloadBytes - staged_);
    LS_CUDA(cudaMemcpyAsync(downloads_ + staged_, static_cast<const std::byte*>(device) + done,
                            static_cast<std::size_t>(n), cudaMemcpyDeviceToHost, handle_));
    deliveries_.push_back({static_cast<std::byte*>(host) + done, downloads_ + staged_, n});
    staged_ += n;
    done += n;
  }
}

}  // namespace longstride::cuda
