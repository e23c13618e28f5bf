// Polls an event, sleeping between polls, so that the core is free. For a host that is far ahead of
// the GPU: waking up late costs nothing, because more work is queued.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <thread>

#include "device/cuda/check.h"

namespace longstride::cuda {

inline void wait_asleep(cudaEvent_t event) {
  for (;;) {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) LS_CUDA(status);
    cudaGetLastError();  // "not ready" is not an error
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace longstride::cuda
