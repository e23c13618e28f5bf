// Copies on the copy engines, on streams of their own, ordered by events.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "device/mover.h"

namespace longstride::cuda {

// `compute` outlives it.
std::unique_ptr<Mover> make_cuda_mover(CudaStream& compute);

}  // namespace longstride::cuda
