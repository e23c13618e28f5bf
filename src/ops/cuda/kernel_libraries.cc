#include "ops/kernel_libraries.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include "device/cuda/check.h"
#include "ops/cuda/attention_cudnn.h"
#include "ops/cuda/attention_segments.h"

namespace longstride::ops::cuda {

std::string kernel_libraries() {
  int runtime = 0;
  LS_CUDA(cudaRuntimeGetVersion(&runtime));
  return fmt::format(
      "CUDA {}.{}, cuBLASLt {}, cuDNN {}, attention in segments of {} ({}) "
      "from multiples of {}, odd chunks filled up, page scores by columns",
      runtime / 1000, runtime % 1000 / 10, cublasLtGetVersion(), cudnn_version(), kSegmentTokens,
      kExactBackwardSegmentTokens, kEvenTokens);
}

}  // namespace longstride::ops::cuda
