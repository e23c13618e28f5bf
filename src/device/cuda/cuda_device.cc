// The CUDA device: plain allocations, made before the first step, and one compute stream.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "base/sizes.h"
#include "device/cuda/activity.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_mover.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/host_arena.h"
#include "device/device.h"
#include "device/why_no_cuda.h"

namespace longstride {
namespace {

using cuda::CudaStream;

constexpr std::int64_t kSmallHostBytes = std::int64_t{64} << 20;  // smaller is pinned at once
constexpr int kOldestMajor = 8;       // sm_80: bf16 in the matrix units, asynchronous copies
constexpr int kOldestDriver = 12080;  // what the CUDA 12.8 runtime needs

class CudaMemory final : public Memory {
 public:
  CudaMemory(std::int64_t bytes, cudaStream_t stream, std::atomic<std::int64_t>& allocated)
      : bytes_(bytes), allocated_(allocated) {
    const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
    LS_CUDA(cudaMalloc(&data_, size));
    LS_CUDA(cudaMemsetAsync(data_, 0, size, stream));
    LS_CUDA(cudaStreamSynchronize(stream));  // a mover's lanes do not wait for this stream
    allocated_ += bytes_;
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() override {
    cudaFree(data_);  // waits for work that uses it
    allocated_ -= bytes_;
  }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
  void* data_ = nullptr;
  std::atomic<std::int64_t>& allocated_;
};

class PinnedMemory final : public Memory {
 public:
  PinnedMemory(std::int64_t bytes, const std::string& what) : bytes_(bytes) {
    if (cudaHostAlloc(&data_, static_cast<std::size_t>(bytes > 0 ? bytes : 1),
                      cudaHostAllocDefault) != cudaSuccess) {
      cudaGetLastError();
      throw Error(
          fmt::format("not enough host memory for {}: {} asked", what,
                      format_bytes(static_cast<double>(bytes))),
          "set memory.host lower, keep the optimizer's state on the device, or free memory on this "
          "machine");
    }
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() override { cudaFreeHost(data_); }
  std::byte* data() const override { return static_cast<std::byte*>(data_); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_;
  void* data_ = nullptr;
};

std::string version_text(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

// Why CUDA cannot be used here: message and hint; both empty if it can.
struct Obstacle {
  std::string message, hint;
};

Obstacle find_obstacle() {
  constexpr const char* kUseCpu = "install NVIDIA's driver, or run with --device cpu";
  int driver = 0, runtime = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    cudaGetLastError();
    return {"this machine has no NVIDIA driver", kUseCpu};
  }
  cudaRuntimeGetVersion(&runtime);
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver || driver < kOldestDriver) {
    cudaGetLastError();
    return {fmt::format("the NVIDIA driver is too old: it serves CUDA {}, this build needs {}",
                        version_text(driver), version_text(runtime)),
            "update the driver, or run with --device cpu"};
  }
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {fmt::format("no usable NVIDIA GPU: {}",
                        status == cudaSuccess ? "none is visible" : cudaGetErrorString(status)),
            "check nvidia-smi and CUDA_VISIBLE_DEVICES, or run with --device cpu"};
  }
  cudaDeviceProp properties{};
  if (const cudaError_t failed = cudaGetDeviceProperties(&properties, 0); failed != cudaSuccess) {
    cudaGetLastError();
    return {fmt::format("the NVIDIA GPU does not answer: {}", cudaGetErrorString(failed)),
            "check nvidia-smi, or run with --device cpu"};
  }
  if (properties.major < kOldestMajor)
    return {fmt::format("{} has compute capability {}.{}; longstride needs 8.0 or newer",
                        properties.name, properties.major, properties.minor),
            "choose another GPU by CUDA_VISIBLE_DEVICES, or run with --device cpu"};
  return {};
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) {
    // Waits for the GPU sleep instead of spinning: they may take seconds.
    if (cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess) cudaGetLastError();
    LS_CUDA(cudaSetDevice(index));
    cudaDeviceProp properties{};
    LS_CUDA(cudaGetDeviceProperties(&properties, index));
    name_ = properties.name;
    stream_ = std::make_unique<CudaStream>(properties.multiProcessorCount);
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }
  Stream& stream() override { return *stream_; }
  bool computes_in_bf16() const override { return true; }

  std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) override {
    LS_CHECK(bytes >= 0, "{} bytes for {}", bytes, what);
    const std::int64_t available = available_bytes();
    if (bytes > available)
      throw Error(
          fmt::format(
              "not enough GPU memory for {}: {} asked, {} free on {} ({} already allocated)", what,
              format_bytes(static_cast<double>(bytes)),
              format_bytes(static_cast<double>(available)), name_,
              format_bytes(static_cast<double>(allocated_bytes()))),
          "use a smaller context, chunk or model, or free memory on this GPU");
    return std::make_unique<CudaMemory>(bytes, stream_->handle(), allocated_);
  }

  std::unique_ptr<Memory> allocate_host(std::int64_t bytes, std::int64_t unit,
                                        const std::string& what) override {
    if (bytes < kSmallHostBytes) return std::make_unique<PinnedMemory>(bytes, what);
    return cuda::make_host_arena(bytes, unit, what);
  }
  std::int64_t available_host_bytes() const override { return cuda::available_host_memory(); }
  std::unique_ptr<Mover> make_mover() override { return cuda::make_cuda_mover(*stream_); }

  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    if (bytes == 0) return;
    LS_CUDA(cudaMemcpyAsync(host, device, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                            stream_->handle()));
    stream_->synchronize();
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    stream_->copy_from_host(device, host, bytes);
  }
  void copy_to_host_later(void* host, const void* device, std::int64_t bytes) override {
    stream_->copy_to_host_later(host, device, bytes);
  }
  ResultFence fetch_result(void* host, const void* device, std::int64_t bytes) override {
    return stream_->results().fetch(host, device, bytes);
  }
  bool has_passed(ResultFence fence) override { return stream_->results().has_passed(fence); }
  void wait_for(ResultFence fence) override { stream_->results().wait_for(fence); }
  void zero(void* device, std::int64_t bytes) override {
    if (bytes > 0)
      LS_CUDA(cudaMemsetAsync(device, 0, static_cast<std::size_t>(bytes), stream_->handle()));
  }

  std::int64_t allocated_bytes() const override { return allocated_; }
  std::int64_t used_bytes() const override {
    std::size_t free = 0, total = 0;
    LS_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(total - free);
  }
  std::int64_t available_bytes() const override {
    std::size_t free = 0, total = 0;
    LS_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(free);
  }
  std::unique_ptr<ActivityRecorder> record_activity() override { return cuda::record_activity(); }

 private:
  std::string name_;
  std::unique_ptr<CudaStream> stream_;
  std::atomic<std::int64_t> allocated_{0};
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(int index) {
  const Obstacle obstacle = find_obstacle();
  if (!obstacle.message.empty()) throw Error(obstacle.message, obstacle.hint);
  return std::make_unique<CudaDevice>(index);
}

int cuda_device_count() {
  int count = 0;
  if (!find_obstacle().message.empty() || cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  return count;
}

std::string why_no_cuda() { return find_obstacle().message; }

}  // namespace longstride
