#include "comm/link_streams.h"

#include <cuda_runtime.h>

#include <vector>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"

namespace longstride::comm {
namespace {

class CudaLinkStreams final : public LinkStreams {
 public:
  explicit CudaLinkStreams(Device& device)
      : device_(device), compute_(cuda::cuda_stream(device.stream()).handle()) {
    LS_CUDA(cudaGetDevice(&index_));
    LS_CUDA(cudaDeviceGetStreamPriorityRange(&least_, &greatest_));
    before_ = static_cast<cudaEvent_t>(add_mark());
  }
  CudaLinkStreams(const CudaLinkStreams&) = delete;
  CudaLinkStreams& operator=(const CudaLinkStreams&) = delete;
  ~CudaLinkStreams() override {
    for (cudaStream_t stream : streams_) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  // A message is short and another GPU waits for it: before what computes.
  Stream add_stream() override {
    cudaStream_t stream = nullptr;
    LS_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest_));
    streams_.push_back(stream);
    return stream;
  }
  Mark add_mark() override {
    cudaEvent_t event = nullptr;
    LS_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    events_.push_back(event);
    return event;
  }
  std::byte* scratch(std::int64_t bytes) override {
    scratch_.push_back(device_.allocate(bytes, "the first messages of a link"));
    return scratch_.back()->data();
  }
  void after_compute(Stream stream) override {
    LS_CUDA(cudaEventRecord(before_, compute_));
    LS_CUDA(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), before_));
  }
  void record(Mark mark, Stream stream) override {
    LS_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(mark), static_cast<cudaStream_t>(stream)));
  }
  bool passed(Mark mark) override {
    const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(mark));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // is not an error
      return false;
    }
    LS_CUDA(status);
    return true;
  }
  void compute_waits(Mark mark) override {
    LS_CUDA(cudaStreamWaitEvent(compute_, static_cast<cudaEvent_t>(mark)));
  }
  void synchronize(Stream stream) override {
    LS_CUDA(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  }
  void enter_thread() override { LS_CUDA(cudaSetDevice(index_)); }

 private:
  Device& device_;
  cudaStream_t compute_;
  int index_ = 0, least_ = 0, greatest_ = 0;
  cudaEvent_t before_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<std::unique_ptr<Memory>> scratch_;
};

}  // namespace

std::unique_ptr<LinkStreams> make_link_streams(Device& device) {
  if (device.kind() != DeviceKind::kCuda)
    throw Error(fmt::format("NCCL moves tensors between GPUs, and the device is {}", device.name()),
                "run on GPUs (--device cuda), or use parallel.link = \"mpi\"");
  return std::make_unique<CudaLinkStreams>(device);
}

std::string gpu_identity(Device& device) {
  if (device.kind() != DeviceKind::kCuda) return "";
  int index = 0;
  cudaDeviceProp properties{};
  LS_CUDA(cudaGetDevice(&index));
  LS_CUDA(cudaGetDeviceProperties(&properties, index));
  std::string text;
  for (const char byte : properties.uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace longstride::comm
