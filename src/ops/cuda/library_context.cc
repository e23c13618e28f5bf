#include "ops/cuda/library_context.h"

#include "base/error.h"
#include "device/cuda/check.h"

namespace longstride::ops::cuda {

LibraryContext::LibraryContext(longstride::cuda::CudaStream& stream) {
  LS_BLAS(cublasLtCreate(&blas_));
  LS_CUDA(cudaMalloc(&workspace_, kWorkspaceBytes));
  LS_CUDA(cudaMemsetAsync(workspace_, 0, kWorkspaceBytes, stream.handle()));
}

LibraryContext::~LibraryContext() {
  cudaFree(workspace_);
  gemms_.clear();
  cublasLtDestroy(blas_);
}

LibraryContext& libraries_of(Stream& stream) {
  longstride::cuda::CudaStream& s = longstride::cuda::cuda_stream(stream);
  return static_cast<LibraryContext&>(
      s.extension([&] { return std::make_unique<LibraryContext>(s); }));
}

void check_blas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw InternalError(fmt::format("{} ({}) in {} at {}:{}", cublasLtGetStatusString(status),
                                    cublasLtGetStatusName(status), call, file, line));
}

}  // namespace longstride::ops::cuda
