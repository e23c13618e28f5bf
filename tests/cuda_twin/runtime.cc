// The functions of the CUDA runtime that the program calls, by the twin. Stricter than CUDA: copies
// know which side is which, and asynchronous ones need pinned memory.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/cuda_twin/memory.h"
#include "tests/cuda_twin/module.h"
#include "tests/cuda_twin/queue.h"
#include "tests/cuda_twin/warp.h"

namespace longstride::twin {
namespace {

constexpr std::uint32_t kSharedByDefault = 48 << 10, kSharedAtMost = 163 << 10;
constexpr int kMultiprocessors = 4;

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t told(cudaError_t status) {
  if (status == cudaSuccess) status = fault();
  if (status != cudaSuccess) last_error = status;
  return status;
}

struct HostFunction {
  std::string name;
  std::uint32_t most_shared = kSharedByDefault;
};
std::mutex functions_mutex;
std::map<const void*, HostFunction>& functions() {
  static auto* const made = new std::map<const void*, HostFunction>;
  return *made;
}

struct Launch {
  Dim3 blocks, threads;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local Launch configured;

void run_kernel(const Kernel& k, const Launch& launch, const std::vector<std::byte>& parameters,
                std::uint64_t order) {
  Block block;
  block.kernel = &k;
  block.parameters = parameters.data();
  block.threads = launch.threads;
  block.blocks = launch.blocks;
  const std::uint32_t threads = launch.threads.x * launch.threads.y * launch.threads.z;
  std::vector<Warp> warps;
  for (std::uint32_t first = 0; first < threads; first += kLanes) {
    const std::uint32_t n = std::min<std::uint32_t>(kLanes, threads - first);
    warps.emplace_back(block, static_cast<int>(first / kLanes),
                       n == kLanes ? kAllLanes : (1u << n) - 1);
  }
  const std::uint64_t all = std::uint64_t{launch.blocks.x} * launch.blocks.y * launch.blocks.z;
  const bool backwards = (order & 1) != 0;
  for (std::uint64_t n = 0; n < all; ++n) {
    const std::uint64_t b = backwards ? all - 1 - n : n;
    block.at = {static_cast<std::uint32_t>(b % launch.blocks.x),
                static_cast<std::uint32_t>(b / launch.blocks.x % launch.blocks.y),
                static_cast<std::uint32_t>(b / launch.blocks.x / launch.blocks.y)};
    block.shared.assign(k.shared_bytes + launch.shared, std::byte{0xFF});
    run_block(block, warps, order + n);
  }
}

std::string text(Dim3 d) { return fmt::format("({}, {}, {})", d.x, d.y, d.z); }

cudaError_t launch_kernel(const void* function, const Launch& launch, void** arguments) {
  const Kernel* k = nullptr;
  std::uint32_t most_shared = 0;
  {
    const std::scoped_lock lock(functions_mutex);
    const auto found = functions().find(function);
    if (found == functions().end()) return cudaErrorInvalidDeviceFunction;
    try {
      k = &kernel_named(found->second.name);
    } catch (const Fault& f) {
      return refuse(cudaErrorInvalidPtx, f.what());
    }
    most_shared = found->second.most_shared;
  }
  const Dim3 b = launch.blocks, t = launch.threads;
  const std::uint64_t threads = std::uint64_t{t.x} * t.y * t.z;
  if (threads == 0 || threads > k->most_threads || t.z > 64 || b.x == 0 || b.y == 0 || b.z == 0 ||
      b.x > 0x7FFFFFFF || b.y > 65535 || b.z > 65535)
    return refuse(cudaErrorInvalidConfiguration,
                  fmt::format("{}: {} blocks of {} threads, {} at most", k->name, text(b), text(t),
                              k->most_threads));
  if (k->shared_bytes + launch.shared > most_shared)
    return refuse(cudaErrorInvalidValue,
                  fmt::format("{}: {} + {} bytes of shared memory, {} allowed", k->name,
                              k->shared_bytes, launch.shared, most_shared));
  std::vector<std::byte> parameters(k->parameter_bytes);
  for (std::size_t i = 0; i < k->parameters.size(); ++i)
    std::memcpy(parameters.data() + k->parameters[i].at, arguments[i], k->parameters[i].bytes);
  const std::uint64_t order = draw();
  enqueue(launch.stream, [k, launch, parameters = std::move(parameters), order] {
    run_kernel(*k, launch, parameters, order);
  });
  return cudaSuccess;
}

enum class Way : std::uint8_t { kToDevice, kToHost, kWithin };

cudaError_t copy(void* to, const void* from, std::size_t bytes, Way way, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const auto check = [=](Place want, const void* p, const char* what) {
    if (!lies_in(want, p, bytes))
      throw Fault(fmt::format("a copy of {} bytes: {} {} is not in {}", bytes, what, p,
                              want == Place::kDevice ? "one device allocation" : "pinned memory"));
  };
  enqueue(stream, [=] {
    check(way == Way::kToHost ? Place::kPinned : Place::kDevice, to, "its target");
    check(way == Way::kToDevice ? Place::kPinned : Place::kDevice, from, "its source");
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}

Way way_between(const void* to, const void* from) {
  if (range_of(reinterpret_cast<std::uint64_t>(to)).place != Place::kDevice) return Way::kToHost;
  if (range_of(reinterpret_cast<std::uint64_t>(from)).place != Place::kDevice)
    return Way::kToDevice;
  return Way::kWithin;
}

}  // namespace
}  // namespace longstride::twin

namespace twin = longstride::twin;

extern "C" {

// Kernels -------------------------------------------------------------------------------------

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  const std::scoped_lock lock(twin::functions_mutex);
  twin::functions()[function].name = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                     CUstream_st* stream) {
  twin::configured = {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  const twin::Launch& c = twin::configured;
  *grid = dim3(c.blocks.x, c.blocks.y, c.blocks.z);
  *block = dim3(c.threads.x, c.threads.y, c.threads.z);
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t stream) {
  return twin::told(twin::launch_kernel(
      kernel, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream}, arguments));
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t stream) {
  return twin::told(twin::launch_kernel(
      function, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream},
      arguments));
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::uint32_t>(value) > twin::kSharedAtMost)
    return twin::told(cudaErrorInvalidValue);
  const std::scoped_lock lock(twin::functions_mutex);
  twin::functions()[function].most_shared =
      std::max(twin::kSharedByDefault, static_cast<std::uint32_t>(value));
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->ptxVersion = attributes->binaryVersion = 80;
  return cudaSuccess;
}

// The device -----------------------------------------------------------------------------------

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : twin::told(cudaErrorInvalidDevice);
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "CUDA twin");
  p->major = 8;
  p->multiProcessorCount = twin::kMultiprocessors;
  p->totalGlobalMem = twin::device_bytes();
  p->sharedMemPerBlock = twin::kSharedByDefault;
  p->sharedMemPerBlockOptin = twin::kSharedAtMost;
  p->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = twin::kSharedAtMost;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = twin::kMultiprocessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    default:
      return twin::told(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  twin::wait_for_all();
  return twin::told(cudaSuccess);
}
cudaError_t cudaGetLastError() {
  const cudaError_t status = twin::last_error;
  twin::last_error = cudaSuccess;
  return status;
}
const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorMemoryAllocation ? "out of memory" : "an error of the CUDA twin";
}
const char* cudaGetErrorName(cudaError_t status) {
  static thread_local std::string name;
  name = fmt::format("cudaError {}", static_cast<int>(status));
  return name.c_str();
}

// Memory ---------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = twin::allocate_device(bytes);
  return twin::told(*data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  twin::wait_for_all();
  return twin::told(twin::free_device(data) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  *data = twin::allocate_pinned(bytes);
  return twin::told(*data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* data) {
  if (data == nullptr) return cudaSuccess;
  twin::wait_for_all();
  return twin::told(twin::free_pinned(data) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  return twin::told(twin::pin(data, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* data) {
  twin::wait_for_all();
  return twin::told(twin::unpin(data) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = twin::device_bytes_free();
  *total = twin::device_bytes();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  using twin::Place;
  const twin::Way way = kind == cudaMemcpyHostToDevice     ? twin::Way::kToDevice
                        : kind == cudaMemcpyDeviceToHost   ? twin::Way::kToHost
                        : kind == cudaMemcpyDeviceToDevice ? twin::Way::kWithin
                                                           : twin::way_between(to, from);
  const bool to_host = way == twin::Way::kToHost;
  if (way != twin::Way::kWithin && !twin::lies_in(Place::kPinned, to_host ? to : from, bytes)) {
    twin::wait_for_stream(stream);  // a copy of memory that is not pinned waits
    if (!twin::lies_in(Place::kDevice, to_host ? from : to, bytes))
      return twin::told(twin::refuse(cudaErrorInvalidValue, "a copy outside of the device"));
    std::memcpy(to, from, bytes);
    return twin::told(cudaSuccess);
  }
  return twin::told(twin::copy(to, from, bytes, way, stream));
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  twin::wait_for_all();
  return twin::told(status);
}
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* bytes,
                                 std::size_t count, cudaMemcpyAttributes*, std::size_t*,
                                 std::size_t, cudaStream_t stream) {
  const bool backwards = (twin::draw() & 1) != 0;  // the copies of a batch have no order
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t i = backwards ? count - 1 - n : n;
    if (const cudaError_t status =
            twin::copy(to[i], from[i], bytes[i], twin::way_between(to[i], from[i]), stream);
        status != cudaSuccess)
      return twin::told(status);
  }
  return twin::told(cudaSuccess);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  twin::enqueue(stream, [=] {
    if (!twin::lies_in(twin::Place::kDevice, to, bytes))
      throw twin::Fault(fmt::format("{} bytes at {} are set outside of the device", bytes, to));
    std::memset(to, value, bytes);
  });
  return twin::told(cudaSuccess);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  const cudaError_t status = cudaMemsetAsync(to, value, bytes, nullptr);
  twin::wait_for_all();
  return twin::told(status);
}

// Streams and events ---------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = twin::make_stream();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  twin::end_stream(stream);
  return twin::told(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  twin::wait_for_stream(stream);
  return twin::told(cudaSuccess);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  twin::let_wait(stream, event);
  return twin::told(cudaSuccess);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = twin::make_event();
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event != nullptr) twin::end_event(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  twin::record(event, stream);
  return twin::told(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t status = twin::fault(); status != cudaSuccess) return twin::told(status);
  return twin::has_passed(event) ? cudaSuccess : cudaErrorNotReady;  // which is not kept
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  twin::wait_for_event(event);
  return twin::told(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = twin::elapsed(begin, end);
  return twin::told(cudaSuccess);
}

}  // extern "C"
