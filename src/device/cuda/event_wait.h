// Waiting for the GPU as one who has time: asleep in between, so that the core is free. For waits
// of a host that is far ahead; what it wakes late by, the GPU has other work for.
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
    cudaGetLastError();  // "not ready" is no fault
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace longstride::cuda
