#include "device/cuda/check.h"

#include "base/error.h"

namespace longstride::cuda {

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  const std::string what = fmt::format("{} ({}) in {} at {}:{}", cudaGetErrorString(status),
                                       cudaGetErrorName(status), call, file, line);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears it: the context remains usable
    throw Error("the GPU is out of memory: " + what,
                "use a smaller context, chunk or model, or free memory on this GPU");
  }
  if (status == cudaErrorDevicesUnavailable || status == cudaErrorECCUncorrectable ||
      status == cudaErrorDeviceUninitialized || status == cudaErrorSystemDriverMismatch)
    throw Error("the GPU failed: " + what,
                "look at nvidia-smi, and resume from the last checkpoint");
  throw InternalError(what);
}

}  // namespace longstride::cuda
