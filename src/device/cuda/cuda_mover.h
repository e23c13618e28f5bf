// Copies on the GPU's copy engines, in streams of their own, ordered by events.
#pragma once

#include "device/cuda/cuda_stream.h"
#include "device/mover.h"

namespace longstride::cuda {

// `compute` outlives it.
std::unique_ptr<Mover> make_cuda_mover(CudaStream& compute);

}  // namespace longstride::cuda
