// Why this process cannot use a GPU.
#pragma once

#include <string>

namespace longstride {

// The reason as a message: the build, the driver or the GPU; "" if CUDA is usable.
std::string why_no_cuda();

}  // namespace longstride
