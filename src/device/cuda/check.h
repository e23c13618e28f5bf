// Checks every CUDA call. A failure names the call and its source line; running out of device
// memory or losing the GPU is an Error, because it is not a fault of the program.
#pragma once

#include <cuda_runtime.h>

namespace longstride::cuda {

// Throws unless `status` is success.
void check(cudaError_t status, const char* call, const char* file, int line);

}  // namespace longstride::cuda

#define LS_CUDA(call) ::longstride::cuda::check((call), #call, __FILE__, __LINE__)
// For use after a launch: reports a bad configuration at once; a fault inside a kernel surfaces at
// the next synchronization.
#define LS_CUDA_LAUNCHED() LS_CUDA(cudaGetLastError())
