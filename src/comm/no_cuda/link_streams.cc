// Linked instead of cuda/ in builds without CUDA.
#include "comm/link_streams.h"

#include "base/error.h"

namespace longstride::comm {

std::unique_ptr<LinkStreams> make_link_streams(Device& device) {
  throw Error(fmt::format("NCCL moves tensors between GPUs, and the device is {}", device.name()),
              "build longstride with CUDA, or use parallel.link = \"mpi\"");
}

std::string gpu_identity(Device& /*device*/) { return ""; }

}  // namespace longstride::comm
