#include "device/cuda/cuda_mover.h"

#include <algorithm>
#include <array>
#include <utility>

#include "device/cuda/check.h"
#include "device/cuda/event_wait.h"

namespace longstride::cuda {
namespace {

constexpr std::size_t kFences = 4096;  // events per lane, used as a ring
constexpr std::size_t kSpans = 1024;   // timed at once
constexpr std::size_t kFewCopies = 4;  // up to here one call each costs less than a batch

// Begin and end of timed work in a lane, and where to add its seconds.
struct Span {
  cudaEvent_t begin = nullptr, end = nullptr;
  double* into = nullptr;
};

class CudaMover final : public Mover {
 public:
  explicit CudaMover(CudaStream& compute) : compute_(compute) {
    LS_CUDA(cudaGetDevice(&device_));
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lane != index(Lane::kCompute))
        LS_CUDA(cudaStreamCreateWithFlags(&copies_[lane], cudaStreamNonBlocking));
      fences_[lane].resize(kFences);
      for (cudaEvent_t& event : fences_[lane])
        LS_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    spans_.resize(kSpans);
    for (Span& span : spans_) {
      LS_CUDA(cudaEventCreate(&span.begin));
      LS_CUDA(cudaEventCreate(&span.end));
    }
  }
  CudaMover(const CudaMover&) = delete;
  CudaMover& operator=(const CudaMover&) = delete;
  ~CudaMover() override {
    for (int lane = 0; lane < kLanes; ++lane) {
      cudaStreamSynchronize(stream(lane));
      for (cudaEvent_t event : fences_[lane]) cudaEventDestroy(event);
      if (copies_[lane] != nullptr) cudaStreamDestroy(copies_[lane]);
    }
    for (const Span& span : spans_) {
      cudaEventDestroy(span.begin);
      cudaEventDestroy(span.end);
    }
  }

  Fence fence(Lane lane) override {
    const int i = index(lane);
    const Fence fence{lane, ++numbers_[i]};
    // The event is reused: its previous fence must have passed, as a lane may still wait for it.
    if (fence.number > kFences) wait_asleep(event(fence));
    LS_CUDA(cudaEventRecord(event(fence), stream(i)));
    return fence;
  }

  void wait(Lane lane, Fence fence, const WaitSite&) override {
    std::uint64_t& waited = waited_[index(lane)][index(fence.lane)];
    if (fence.lane == lane || fence.number <= waited) return;
    waited = fence.number;
    if (fence.number + kFences <= numbers_[index(fence.lane)]) return;  // passed: event was reused
    if (cudaEventQuery(event(fence)) == cudaSuccess) return;
    if (lane != Lane::kCompute)
      return LS_CUDA(cudaStreamWaitEvent(stream(index(lane)), event(fence), 0));
    timed(index(lane), &times_.blocked_s,
          [&] { LS_CUDA(cudaStreamWaitEvent(stream(index(lane)), event(fence), 0)); });
  }

  void wait_on_host(Fence fence, const WaitSite&) override {
    if (fence.number == 0) return;
    LS_CUDA(cudaSetDevice(device_));  // any thread may call this
    wait_asleep(event(fence));
  }

  void copy(Lane lane, std::span<const Copy> copies) override {
    if (copies.empty()) return;
    double* const into = lane == Lane::kFromHost ? &times_.from_host_s : &times_.to_host_s;
    timed(index(lane), into, [&] { queue(lane, copies); });
  }

  void finish() override {
    for (int lane = 0; lane < kLanes; ++lane) LS_CUDA(cudaStreamSynchronize(stream(lane)));
    while (timed_ > 0) settle();
  }

  MoveTimes take_times() override {
    while (timed_ > 0 && cudaEventQuery(oldest().end) == cudaSuccess) settle();
    cudaGetLastError();  // "not ready" is not an error
    return std::exchange(times_, {});
  }

 private:
  static int index(Lane lane) { return static_cast<int>(lane); }
  cudaStream_t stream(int lane) const {
    return lane == index(Lane::kCompute) ? compute_.handle() : copies_[lane];
  }
  cudaEvent_t event(Fence fence) const {
    return fences_[index(fence.lane)][fence.number % kFences];
  }

  void queue(Lane lane, std::span<const Copy> copies) {
    auto* const to = stream(index(lane));
#if CUDART_VERSION >= 13000
    if (copies.size() > kFewCopies) {
      destinations_.clear();
      sources_.clear();
      sizes_.clear();
      for (const Copy& c : copies) {
        destinations_.push_back(c.to);
        sources_.push_back(c.from);
        sizes_.push_back(static_cast<std::size_t>(c.bytes));
      }
      cudaMemcpyAttributes attributes{};
      attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
      std::size_t first = 0;
      return LS_CUDA(cudaMemcpyBatchAsync(destinations_.data(), sources_.data(), sizes_.data(),
                                          copies.size(), &attributes, &first, 1, to));
    }
#endif
    for (const Copy& c : copies)
      LS_CUDA(cudaMemcpyAsync(
          c.to, c.from, static_cast<std::size_t>(c.bytes),
          lane == Lane::kFromHost ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, to));
  }

  template <class F>
  void timed(int lane, double* into, const F& f) {
    if (timed_ == kSpans) settle();
    Span& span = spans_[(first_timed_ + timed_++) % kSpans];
    span.into = into;
    LS_CUDA(cudaEventRecord(span.begin, stream(lane)));
    f();
    LS_CUDA(cudaEventRecord(span.end, stream(lane)));
  }
  Span& oldest() { return spans_[first_timed_]; }
  // Waits for the oldest timed span and adds its time.
  void settle() {
    wait_asleep(oldest().end);
    float milliseconds = 0;
    LS_CUDA(cudaEventElapsedTime(&milliseconds, oldest().begin, oldest().end));
    *oldest().into += static_cast<double>(milliseconds) * 1e-3;
    first_timed_ = (first_timed_ + 1) % kSpans;
    --timed_;
  }

  CudaStream& compute_;
  int device_ = 0;
  std::array<cudaStream_t, kLanes> copies_{};
  std::array<std::vector<cudaEvent_t>, kLanes> fences_;
  std::array<std::uint64_t, kLanes> numbers_{};
  std::array<std::array<std::uint64_t, kLanes>, kLanes> waited_{};  // [waiting lane][fence's lane]
  std::vector<Span> spans_;                                         // a ring
  std::size_t first_timed_ = 0, timed_ = 0;
  MoveTimes times_;
  std::vector<void*> destinations_;
  std::vector<const void*> sources_;
  std::vector<std::size_t> sizes_;
};

}  // namespace

std::unique_ptr<Mover> make_cuda_mover(CudaStream& compute) {
  return std::make_unique<CudaMover>(compute);
}

}  // namespace longstride::cuda
