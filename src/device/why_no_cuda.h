// What stands between this process and a GPU.
#pragma once

#include <string>

namespace longstride {

// This build, the driver or the GPU, in words for people; "" where there is CUDA.
std::string why_no_cuda();

}  // namespace longstride
